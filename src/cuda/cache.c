/*
 * A file for each image, in the folder ADJOIN_CUDA_CACHE, by default adjoin in the user's cache folder; its name is the hash of the key. The key itself is in
 * the file, and so is a hash of all of it: neither a collision nor half a file is taken for the image. Files are written under another name
 * first, so that ranks that compile the same kernel at the same time do not read each other's beginnings.
 */
#include "cuda/cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct header {
    char magic[16];
    uint64_t key_bytes, bytes;
    uint64_t hash; /* of the key and the image */
} header;

static const char magic[16] = "adjoin kernel 1";

uint64_t aji_cuda_hash(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

/* ---- where ---- */

enum { PATH = 4096 };

/* The folder; false: the cache is off. */
static bool find_folder(char folder[PATH]) {
    const char *own = getenv("ADJOIN_CUDA_CACHE"), *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = 0;
    if (own)
        n = snprintf(folder, PATH, "%s", own);
    else if (base && *base)
        n = snprintf(folder, PATH, "%s/adjoin", base);
    else if (home && *home)
        n = snprintf(folder, PATH, "%s/.cache/adjoin", home);
    return n > 0 && n < PATH - 64;
}

/* Make the folder and those that lead to it. Whether that works shows when the file is written. */
static void make_folders(const char *folder) {
    char part[PATH];
    snprintf(part, sizeof(part), "%s", folder);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(part, 0777);
        *slash = '/';
    }
    (void)mkdir(part, 0777);
}

static bool find_file(char path[PATH + 64], const char *folder, const char *key, size_t key_bytes) {
    /* two hashes of 64 bits, of which the second goes on from another begin */
    uint64_t first = aji_cuda_hash(AJI_HASH_BEGIN, key, key_bytes);
    uint64_t second = aji_cuda_hash(aji_cuda_hash(AJI_HASH_BEGIN, magic, sizeof(magic)), key, key_bytes);
    return snprintf(path, PATH + 64, "%s/%016" PRIx64 "%016" PRIx64, folder, first, second) < PATH + 64;
}

/* ---- reading ---- */

/* The header fits the key, and the file is as long as it says. */
static bool is_for(const header *h, size_t key_bytes, FILE *file) {
    if (memcmp(h->magic, magic, sizeof(magic)) != 0 || h->key_bytes != key_bytes || h->bytes == 0 || h->bytes > INT64_MAX / 4)
        return false;
    return fseek(file, 0, SEEK_END) == 0 && (uint64_t)ftell(file) == sizeof(*h) + h->key_bytes + h->bytes &&
           fseek(file, (long)sizeof(*h), SEEK_SET) == 0;
}

static char *read_file(aj_ctx *ctx, FILE *file, const char *key, size_t key_bytes, size_t *bytes) {
    header h;
    if (fread(&h, sizeof(h), 1, file) != 1 || !is_for(&h, key_bytes, file))
        return NULL;
    size_t all = key_bytes + (size_t)h.bytes;
    char *memory = aji_alloc(ctx, all), *image = NULL;
    if (!memory)
        return NULL;
    bool good = fread(memory, 1, all, file) == all && memcmp(memory, key, key_bytes) == 0 &&
                aji_cuda_hash(AJI_HASH_BEGIN, memory, all) == h.hash;
    if (good)
        image = aji_alloc(ctx, (size_t)h.bytes);
    if (image)
        memcpy(image, memory + key_bytes, (size_t)h.bytes);
    aji_free(ctx, memory, all);
    *bytes = (size_t)h.bytes;
    return image;
}

char *aji_cuda_cache_read(aj_ctx *ctx, const char *key, size_t key_bytes, size_t *bytes) {
    char folder[PATH], path[PATH + 64];
    if (!find_folder(folder) || !find_file(path, folder, key, key_bytes))
        return NULL;
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    char *image = read_file(ctx, file, key, key_bytes, bytes);
    fclose(file);
    return image;
}

/* ---- writing ---- */

static bool write_file(FILE *file, const char *key, size_t key_bytes, const char *image, size_t bytes) {
    header h = {.key_bytes = key_bytes, .bytes = bytes};
    memcpy(h.magic, magic, sizeof(magic));
    h.hash = aji_cuda_hash(aji_cuda_hash(AJI_HASH_BEGIN, key, key_bytes), image, bytes);
    bool good = fwrite(&h, sizeof(h), 1, file) == 1 && fwrite(key, 1, key_bytes, file) == key_bytes &&
                fwrite(image, 1, bytes, file) == bytes;
    return fclose(file) == 0 && good;
}

void aji_cuda_cache_write(const char *key, size_t key_bytes, const char *image, size_t bytes) {
    char folder[PATH], path[PATH + 64], temporary[PATH + 80];
    if (!find_folder(folder) || !find_file(path, folder, key, key_bytes))
        return;
    make_folders(folder);
    snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
    int descriptor = mkstemp(temporary);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "wb") : NULL;
    if (!file) {
        if (descriptor >= 0)
            close(descriptor);
        return;
    }
    if (!write_file(file, key, key_bytes, image, bytes) || rename(temporary, path) != 0)
        unlink(temporary);
}
