/*
 * The stand-in compiler: NVRTC by way of the C++ compiler. A source is compiled as it is, behind cuda_host/device.hpp, to a shared library, and the
 * "cubin" is that library's path. Libraries are kept by their source's hash, so that programs that need the same kernels compile them once.
 */
#include "cuda_standin_private.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 1024, MAX_KERNELS = 32 };

struct _nvrtcProgram {
    char *source;
    char *log;
    char path[PATH + 64]; /* "": not compiled */
};

#define BEGIN_NVRTC(function)                                                                                                    \
    do {                                                                                                                         \
        int standin_code = standin_failure(#function);                                                                           \
        if (standin_code)                                                                                                        \
            return (nvrtcResult)standin_code;                                                                                    \
    } while (0)

/* ---- files ---- */

static char *read_all(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *text = NULL;
    size_t n = 0, got;
    do {
        text = realloc(text, n + 4097);
        got = fread(text + n, 1, 4096, file);
        n += got;
    } while (got > 0);
    text[n] = 0;
    fclose(file);
    return text;
}

static uint64_t hash(uint64_t h, const char *text) {
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return h;
}

static void find_folder(char folder[PATH]) {
    const char *tests = getenv("ADJOIN_TEST_DIR"), *temporary = getenv("TMPDIR");
    if (tests && *tests)
        snprintf(folder, PATH, "%s/standin_kernels", tests);
    else
        snprintf(folder, PATH, "%s/adjoin_standin_kernels_%ld", temporary && *temporary ? temporary : "/tmp", (long)getuid());
    (void)mkdir(folder, 0700);
}

/* ---- compiling ---- */

/* What a kernel is found by: its name, and the type of its argument. */
typedef struct signature {
    char name[128], type[128];
} signature;

static const char *word(const char *at, char text[128]) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    at += strspn(at, " \t\n");
    size_t n = strspn(at, letters);
    snprintf(text, 128, "%.*s", (int)n, at);
    return at + n;
}

/* The next definition or declaration of a kernel after *at: `__global__ void name(const type`. */
static bool next_kernel(const char **at, signature *s) {
    const char *begin = strstr(*at, "__global__");
    if (!begin)
        return false;
    begin = strstr(begin, "void ");
    if (!begin)
        return false;
    *at = word(begin + strlen("void "), s->name);
    if (strcmp(s->name, "__launch_bounds__") == 0)
        *at = word(*at + strcspn(*at, ")") + 1, s->name);
    *at += strspn(*at, " (");
    *at = word(*at, s->type);
    while (strcmp(s->type, "const") == 0 || strcmp(s->type, "struct") == 0)
        *at = word(*at, s->type);
    return true;
}

/* What the launcher looks up, behind the source. */
static void write_entries(FILE *file, const char *source) {
    signature seen[MAX_KERNELS], s;
    int n = 0;
    while (next_kernel(&source, &s)) {
        bool is_new = n < MAX_KERNELS;
        for (int i = 0; i < n; i++)
            is_new = is_new && strcmp(seen[i].name, s.name) != 0;
        if (!is_new)
            continue;
        seen[n++] = s;
        fprintf(file,
                "\nstatic void standin_call_%s(const void *a) {\n    %s(*(const %s *)a);\n}\n"
                "extern \"C\" const standin_entry standin_entry_%s;\n"
                "const standin_entry standin_entry_%s = {sizeof(%s), standin_call_%s};\n",
                s.name, s.name, s.type, s.name, s.name, s.type, s.name);
    }
}

/* The libraries of several compilers at once do not meet: each is renamed when it is whole. */
static bool build(nvrtcProgram p, const char *folder, uint64_t h) {
    char base[PATH + 64], command[6 * PATH];
    snprintf(base, sizeof(base), "%s/%016" PRIx64 ".%ld", folder, h, (long)getpid());
    snprintf(command, sizeof(command), "%s.cpp", base);
    FILE *file = fopen(command, "w");
    if (!file)
        STANDIN_DIE("%s cannot be written", command);
    fprintf(file, "#line 1 \"kernel\"\n%s", p->source);
    write_entries(file, p->source);
    fclose(file);
    const char *compiler = getenv("CXX");
    snprintf(command, sizeof(command),
             "%s -std=gnu++17 -O1 -g -w -ffp-contract=off -fno-strict-aliasing -shared -fPIC -Wl,-Bsymbolic -I%s -include "
             "device.hpp '%s.cpp' -o '%s.so' -lm > '%s.log' 2>&1",
             compiler && *compiler ? compiler : "c++", STANDIN_HOST_DIR, base, base, base);
    int status = system(command);
    char log[PATH + 80], library[PATH + 80], source[PATH + 80];
    snprintf(log, sizeof(log), "%s.log", base);
    snprintf(library, sizeof(library), "%s.so", base);
    snprintf(source, sizeof(source), "%s.cpp", base);
    free(p->log);
    p->log = read_all(log);
    unlink(log);
    unlink(source);
    return status == 0 && rename(library, p->path) == 0;
}

static nvrtcResult in_nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *options) {
    BEGIN_NVRTC(nvrtcCompileProgram);
    char folder[PATH];
    char *prelude = read_all(STANDIN_HOST_DIR "/device.hpp");
    if (!prelude)
        STANDIN_DIE(STANDIN_HOST_DIR "/device.hpp is not there");
    for (int i = 0; i < n; i++)
        if (strncmp(options[i], "--", 2) != 0)
            return NVRTC_ERROR_INVALID_OPTION;
    uint64_t h = hash(hash(hash(0xcbf29ce484222325u, prelude), p->source), "2"); /* of this file's own options */
    free(prelude);
    find_folder(folder);
    snprintf(p->path, sizeof(p->path), "%s/%016" PRIx64 ".so", folder, h);
    if (access(p->path, R_OK) == 0 || build(p, folder, h)) {
        standin_ask_nvrtc(folder, p->source, n, options);
        return NVRTC_SUCCESS;
    }
    p->path[0] = 0;
    return NVRTC_ERROR_COMPILATION;
}

/* ---- the rest of NVRTC ---- */

static nvrtcResult in_nvrtcVersion(int *major, int *minor) {
    BEGIN_NVRTC(nvrtcVersion);
    *major = 99;
    *minor = 0;
    return NVRTC_SUCCESS;
}

static const char *in_nvrtcGetErrorString(nvrtcResult code) {
    (void)standin_failure("nvrtcGetErrorString");
    return code == NVRTC_ERROR_COMPILATION ? "NVRTC_ERROR_COMPILATION" : "an error of the stand-in compiler";
}

static nvrtcResult in_nvrtcCreateProgram(nvrtcProgram *p, const char *source, const char *name, int n, const char *const *headers,
                                         const char *const *names) {
    BEGIN_NVRTC(nvrtcCreateProgram);
    (void)name;
    (void)headers;
    (void)names;
    if (!source || n != 0)
        return NVRTC_ERROR_INVALID_INPUT;
    *p = calloc(1, sizeof(**p));
    (*p)->source = strdup(source);
    (*p)->log = strdup("");
    standin_hold(1);
    return NVRTC_SUCCESS;
}

static nvrtcResult in_nvrtcDestroyProgram(nvrtcProgram *p) {
    free((*p)->source);
    free((*p)->log);
    free(*p);
    *p = NULL;
    standin_hold(-1);
    return (nvrtcResult)standin_failure("nvrtcDestroyProgram");
}

static nvrtcResult get_size(nvrtcProgram p, size_t *bytes) {
    *bytes = strlen(p->path) + 1;
    return p->path[0] ? NVRTC_SUCCESS : NVRTC_ERROR_INVALID_PROGRAM;
}

static nvrtcResult get_image(nvrtcProgram p, char *image) {
    memcpy(image, p->path, strlen(p->path) + 1);
    return p->path[0] ? NVRTC_SUCCESS : NVRTC_ERROR_INVALID_PROGRAM;
}

static nvrtcResult in_nvrtcGetCUBINSize(nvrtcProgram p, size_t *bytes) {
    BEGIN_NVRTC(nvrtcGetCUBINSize);
    return get_size(p, bytes);
}

static nvrtcResult in_nvrtcGetCUBIN(nvrtcProgram p, char *image) {
    BEGIN_NVRTC(nvrtcGetCUBIN);
    return get_image(p, image);
}

static nvrtcResult in_nvrtcGetPTXSize(nvrtcProgram p, size_t *bytes) {
    BEGIN_NVRTC(nvrtcGetPTXSize);
    return get_size(p, bytes);
}

static nvrtcResult in_nvrtcGetPTX(nvrtcProgram p, char *image) {
    BEGIN_NVRTC(nvrtcGetPTX);
    return get_image(p, image);
}

static const int architectures[] = {75, 80, 90, 100};

static nvrtcResult in_nvrtcGetNumSupportedArchs(int *n) {
    BEGIN_NVRTC(nvrtcGetNumSupportedArchs);
    *n = (int)(sizeof(architectures) / sizeof(architectures[0]));
    return NVRTC_SUCCESS;
}

static nvrtcResult in_nvrtcGetSupportedArchs(int *list) {
    BEGIN_NVRTC(nvrtcGetSupportedArchs);
    memcpy(list, architectures, sizeof(architectures));
    return NVRTC_SUCCESS;
}

static nvrtcResult in_nvrtcGetProgramLogSize(nvrtcProgram p, size_t *bytes) {
    BEGIN_NVRTC(nvrtcGetProgramLogSize);
    *bytes = strlen(p->log) + 1;
    return NVRTC_SUCCESS;
}

static nvrtcResult in_nvrtcGetProgramLog(nvrtcProgram p, char *log) {
    BEGIN_NVRTC(nvrtcGetProgramLog);
    memcpy(log, p->log, strlen(p->log) + 1);
    return NVRTC_SUCCESS;
}

void standin_compiler(aji_cuda_api *api) {
    api->nvrtcVersion = in_nvrtcVersion;
    api->nvrtcGetErrorString = in_nvrtcGetErrorString;
    api->nvrtcCreateProgram = in_nvrtcCreateProgram;
    api->nvrtcDestroyProgram = in_nvrtcDestroyProgram;
    api->nvrtcCompileProgram = in_nvrtcCompileProgram;
    api->nvrtcGetCUBINSize = in_nvrtcGetCUBINSize;
    api->nvrtcGetCUBIN = in_nvrtcGetCUBIN;
    api->nvrtcGetNumSupportedArchs = in_nvrtcGetNumSupportedArchs;
    api->nvrtcGetSupportedArchs = in_nvrtcGetSupportedArchs;
    api->nvrtcGetPTXSize = in_nvrtcGetPTXSize;
    api->nvrtcGetPTX = in_nvrtcGetPTX;
    api->nvrtcGetProgramLogSize = in_nvrtcGetProgramLogSize;
    api->nvrtcGetProgramLog = in_nvrtcGetProgramLog;
    api->loaded[AJI_LIB_NVRTC] = true;
}
