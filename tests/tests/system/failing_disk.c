/* A failing disk for one process, loaded before libc (LD_PRELOAD). While the file $FAIL_TRIGGER
   exists, calls fail with EIO on files with paths that begin with $FAIL_BELOW. $FAIL_WHAT selects
   the calls: "sync", "write", or "sync-once". After "sync-once" all calls succeed, as on Linux.
   There an error of write-back is reported once, the pages count as clean, and the next fsync
   succeeds.

   Each sync call on these files is recorded in $FAIL_NOTES, so that a test finds repeated calls
   after a failure: "CALL failed|passed FILE PATH", one on each line. FILE is the inode and its time
   of creation, because inodes are reused and names change. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static ssize_t (*libc_write)(int, const void *, size_t);

static void note(int fd, const char *path, const char *call, const char *outcome) {
    const char *notes = getenv("FAIL_NOTES");
    struct statx about;
    char line[PATH_MAX + 64];
    if (!notes || statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &about) != 0) return;
    int length = snprintf(line, sizeof line, "%s %s %llu-%lld.%u %s\n", call, outcome,
                          (unsigned long long)about.stx_ino, (long long)about.stx_btime.tv_sec,
                          (unsigned)about.stx_btime.tv_nsec, path);
    int out = open(notes, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (out < 0) return;
    if (!libc_write) *(void **)&libc_write = dlsym(RTLD_NEXT, "write");
    ssize_t written = libc_write(out, line, (size_t)length);
    (void)written;
    close(out);
}

/* True if this call must fail. Its kind is "sync", "write", or "hint" (a request to start
   write-back). */
static int fails(int fd, const char *kind, const char *call) {
    const char *below = getenv("FAIL_BELOW"), *trigger = getenv("FAIL_TRIGGER");
    const char *what = getenv("FAIL_WHAT");
    char link[64], path[PATH_MAX];
    if (!below || !trigger || !what) return 0;
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) length = 0;
    path[length] = 0;
    int failing = 0;
    if (strncmp(path, below, strlen(below)) == 0) {
        if (strcmp(what, "sync-once") == 0) {
            /* Only one of several simultaneous threads removes the trigger. */
            failing = strcmp(kind, "sync") == 0 && unlink(trigger) == 0;
        } else {
            int is_hint = strcmp(kind, "hint") == 0 && strcmp(what, "sync") == 0;
            failing = (is_hint || strcmp(kind, what) == 0) && access(trigger, F_OK) == 0;
        }
        if (failing || strcmp(kind, "sync") == 0) note(fd, path, call, failing ? "failed" : "passed");
    }
    errno = failing ? EIO : before;
    return failing;
}

#define NEXT(name) \
    static __typeof__(&name) next; \
    if (!next) *(void **)&next = dlsym(RTLD_NEXT, #name)

int fsync(int fd) {
    NEXT(fsync);
    return fails(fd, "sync", "fsync") ? -1 : next(fd);
}

int fdatasync(int fd) {
    NEXT(fdatasync);
    return fails(fd, "sync", "fdatasync") ? -1 : next(fd);
}

int sync_file_range(int fd, off64_t from, off64_t bytes, unsigned int flags) {
    NEXT(sync_file_range);
    return fails(fd, "hint", "sync_file_range") ? -1 : next(fd, from, bytes, flags);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    NEXT(write);
    return fails(fd, "write", "write") ? -1 : next(fd, bytes, count);
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) {
    NEXT(pwrite);
    return fails(fd, "write", "pwrite") ? -1 : next(fd, bytes, count, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    NEXT(pwrite64);
    return fails(fd, "write", "pwrite64") ? -1 : next(fd, bytes, count, at);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    NEXT(writev);
    return fails(fd, "write", "writev") ? -1 : next(fd, parts, count);
}
