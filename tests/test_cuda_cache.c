/* The cache of compiled kernels on disk. "Compiled" is what nvrtcCompileProgram was called for. */
#include "cuda_standin_private.h"
#include "serial.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/adjoin_cache_XXXXXX";
static aji_cuda_api api;

static void begin_cache(void) {
    strcpy(strrchr(folder, '_'), "_XXXXXX");
    cr_assert(mkdtemp(folder));
    cr_assert(setenv("ADJOIN_CUDA_CACHE", folder, 1) == 0);
    api = standin_api();
}

typedef void each_file(const char *path);

/* The files of the folder; how many. */
static int for_files(each_file *visit) {
    DIR *files = opendir(folder);
    int n = 0;
    if (!files)
        return 0;
    for (struct dirent *file; (file = readdir(files));) {
        char path[512];
        if (file->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, file->d_name);
        if (visit)
            visit(path);
        n++;
    }
    closedir(files);
    return n;
}

static void remove_file(const char *path) {
    cr_assert(unlink(path) == 0);
}

static void finish_cache(void) {
    (void)chmod(folder, 0700);
    for_files(remove_file);
    (void)rmdir(folder);
}

/* What a new context compiles for the same work; its numbers are checked. */
static long compiled_by_context(void) {
    long before = standin_calls("nvrtcCompileProgram");
    begin();
    aj_device device = aji_cuda_open(context, &api, 0);
    aj_tensor *x = aj_to_device(F64((2, 3), 1, 2, 3, 4, 5, 6), device);
    expect_values(aj_to_device(aj_sum_axes(aj_square(x), 1, (int[]){1}, false), aj_cpu(context)), 0, 14, 77);
    expect_values(aj_to_device(aj_add_scalar(x, 1), aj_cpu(context)), 0, 2, 3, 4, 5, 6, 7);
    finish();
    return standin_calls("nvrtcCompileProgram") - before;
}

TestSuite(cuda_cache, .init = begin_cache, .fini = finish_cache);

Test(cuda_cache, is_written_and_found_again) {
    long n = compiled_by_context();
    cr_assert(n >= 2 && for_files(NULL) == n, "%ld compiled, %d written", n, for_files(NULL));
    cr_assert(compiled_by_context() == 0 && for_files(NULL) == n);
}

/* In folders that are not there yet, of which some are. */
Test(cuda_cache, makes_its_folders) {
    char deep[512], path[600];
    snprintf(deep, sizeof deep, "%s/a/b", folder);
    setenv("ADJOIN_CUDA_CACHE", deep, 1);
    cr_assert(compiled_by_context() > 0 && compiled_by_context() == 0);
    strcpy(path, folder);
    strcpy(folder, deep);
    for_files(remove_file);
    strcpy(folder, path);
    rmdir(deep);
    snprintf(deep, sizeof deep, "%s/a", folder);
    rmdir(deep);
}

Test(cuda_cache, lies_in_the_users_cache_folder) {
    char path[600], top[sizeof folder];
    unsetenv("ADJOIN_CUDA_CACHE");
    setenv("XDG_CACHE_HOME", folder, 1);
    cr_assert(compiled_by_context() > 0 && compiled_by_context() == 0);
    strcpy(top, folder);
    snprintf(path, sizeof path, "%s/adjoin", folder);
    cr_assert(access(path, W_OK) == 0);
    DIR *files = opendir(path);
    for (struct dirent *file; (file = readdir(files));)
        if (file->d_name[0] != '.')
            cr_assert(unlinkat(dirfd(files), file->d_name, 0) == 0);
    closedir(files);
    rmdir(path);
}

Test(cuda_cache, is_off_where_its_name_is_empty) {
    setenv("ADJOIN_CUDA_CACHE", "", 1);
    long n = compiled_by_context();
    cr_assert(n > 0 && compiled_by_context() == n && for_files(NULL) == 0);
}

/* ---- damage ---- */

static void truncate_file(const char *path) {
    struct stat s;
    cr_assert(stat(path, &s) == 0 && truncate(path, s.st_size - 1) == 0);
}

static void cut_short(const char *path) {
    cr_assert(truncate(path, 7) == 0);
}

static void empty(const char *path) {
    cr_assert(truncate(path, 0) == 0);
}

static void lengthen(const char *path) {
    FILE *file = fopen(path, "ab");
    cr_assert(file && fputc('x', file) == 'x' && fclose(file) == 0);
}

static void overwrite(const char *path, long at, int whence, int with) {
    FILE *file = fopen(path, "r+b");
    cr_assert(file && fseek(file, at, whence) == 0);
    int old = fgetc(file);
    cr_assert(fseek(file, at, whence) == 0 && fputc(with < 0 ? old ^ 1 : with, file) != EOF && fclose(file) == 0);
}

static void damage_magic(const char *path) {
    overwrite(path, 3, SEEK_SET, -1);
}

static void damage_length(const char *path) {
    overwrite(path, 31, SEEK_SET, 0x7f); /* of the image: more than there is memory */
}

static void damage_key(const char *path) {
    overwrite(path, 60, SEEK_SET, -1);
}

static void damage_image(const char *path) {
    overwrite(path, -2, SEEK_END, -1);
}

static void become_folder(const char *path) {
    cr_assert(unlink(path) == 0 && mkdir(path, 0700) == 0);
}

static void remove_folder(const char *path) {
    if (rmdir(path) != 0)
        remove_file(path);
}

/* Compiled again, and written again. */
Test(cuda_cache, takes_no_damaged_files) {
    static each_file *const damages[] = {truncate_file, cut_short,     empty,      lengthen,
                                         damage_magic,  damage_length, damage_key, damage_image};
    long n = compiled_by_context();
    for (size_t k = 0; k < sizeof damages / sizeof damages[0]; k++) {
        for_files(damages[k]);
        cr_assert(compiled_by_context() == n, "damage %zu is not seen", k);
        cr_assert(for_files(NULL) == n && compiled_by_context() == 0, "damage %zu is not mended", k);
    }
}

Test(cuda_cache, works_where_a_file_cannot_be_written) {
    long n = compiled_by_context();
    for_files(become_folder);
    cr_assert(compiled_by_context() == n && compiled_by_context() == n);
    cr_assert(for_files(remove_folder) == n, "temporary files are left");
}

/* Another kernel's file, whole as it is, under this one's name. */
static char first_path[512];

static void take_first(const char *path) {
    if (!first_path[0]) {
        strcpy(first_path, path);
        return;
    }
    cr_assert(unlink(path) == 0 && link(first_path, path) == 0);
}

Test(cuda_cache, takes_no_other_kernels_files) {
    long n = compiled_by_context();
    for_files(take_first);
    cr_assert(compiled_by_context() == n - 1 && compiled_by_context() == 0);
}

/* ---- a folder that cannot be written, or be ---- */

Test(cuda_cache, works_without_a_folder) {
    char path[512];
    snprintf(path, sizeof path, "%s/file", folder);
    FILE *file = fopen(path, "w");
    cr_assert(file && fclose(file) == 0);
    setenv("ADJOIN_CUDA_CACHE", path, 1);
    cr_assert(compiled_by_context() > 0 && compiled_by_context() > 0);
    snprintf(path, sizeof path, "%s/file/below", folder);
    setenv("ADJOIN_CUDA_CACHE", path, 1);
    cr_assert(compiled_by_context() > 0);
    char *long_path = malloc(10000);
    memset(long_path, 'x', 9999);
    long_path[0] = '/';
    long_path[9999] = 0;
    setenv("ADJOIN_CUDA_CACHE", long_path, 1);
    cr_assert(compiled_by_context() > 0);
    free(long_path);
}

Test(cuda_cache, works_in_a_folder_that_may_only_be_read) {
    long n = compiled_by_context();
    cr_assert(chmod(folder, 0500) == 0);
    cr_assert(compiled_by_context() == 0);
    cr_assert(chmod(folder, 0700) == 0);
    for_files(remove_file);
    cr_assert(chmod(folder, 0500) == 0);
    if (access(folder, W_OK) == 0) /* root may write anywhere */
        return;
    cr_assert(compiled_by_context() == n && compiled_by_context() == n && for_files(NULL) == 0);
}

/* ---- what an image depends on ---- */

static int minor;

static nvrtcResult version(int *major, int *m) {
    *major = 99;
    *m = minor;
    return NVRTC_SUCCESS;
}

static CUresult attribute(int *value, CUdevice_attribute which, CUdevice number) {
    aji_cuda_api all = standin_api();
    CUresult code = all.cuDeviceGetAttribute(value, which, number);
    if (which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        *value = 8;
    return code;
}

Test(cuda_cache, tells_versions_devices_and_options_apart) {
    long n = compiled_by_context();
    api.nvrtcVersion = version;
    minor = 0;
    cr_assert(compiled_by_context() == 0);
    minor = 1;
    cr_assert(compiled_by_context() == n && compiled_by_context() == 0);
    api.cuDeviceGetAttribute = attribute;
    cr_assert(compiled_by_context() == n && compiled_by_context() == 0);
    setenv("CUDA_HOME", "/nonexistent/cuda", 1); /* another folder of headers */
    cr_assert(compiled_by_context() == n && compiled_by_context() == 0);
    cr_assert(for_files(NULL) == 4 * n);
}
