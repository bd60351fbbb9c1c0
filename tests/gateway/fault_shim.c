/* What a kernel under a gateway may do, for LD_PRELOAD: disks that fail, forget or hang, and a wall clock that
 * jumps. A test turns it on through a file that both have mapped (tests/gateway/fault_shim.py describes it). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    long long sync_fault;  /* 0: none; -1: hangs; otherwise the errno */
    long long sync_passes; /* so many fsyncs still work */
    long long write_room;  /* -1: no bound; otherwise so many bytes are still taken, then `write_fault` */
    long long write_fault; /* 0: ENOSPC; otherwise the errno */
    long long forgets;     /* a failed fsync zeroes what the last good one did not cover */
    long long database;    /* the faults are those of the database, not of the journal */
    long long clock_shift; /* nanoseconds that the wall clock is off */
    long long syncs_failed;
    long long syncs_hanging;
    long long writes_failed;
    long long sync_delay;  /* microseconds that each fsync takes longer */
    char target[64];       /* the faults are those of files with this in their path; empty: as `database` says */
};

static volatile struct control *control;

/* Also called in a process that was forked after the library was loaded. */
__attribute__((constructor)) void fault_shim_start(void) {
    const char *path = getenv("FAULT_SHIM");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *found = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        control = found == MAP_FAILED ? NULL : found;
        close(file);
    }
}

static int concerns(int file, char *path) {
    char link[64];
    if (!control) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    const char *target = (const char *) control->target;
    if (*target) return strstr(path, target) != NULL;
    return strstr(path, control->database ? "moot.sqlite" : ".jsonl") != NULL;
}

/* The size that the last good fsync covered stands beside the file, so that it outlives the process. */
static void note_synced(const char *path, off_t size) {
    char beside[PATH_MAX + 16], fresh[PATH_MAX + 16];
    snprintf(beside, sizeof beside, "%s.synced", path);
    snprintf(fresh, sizeof fresh, "%s.fresh", path);
    FILE *note = fopen(fresh, "w");
    if (note) {
        fprintf(note, "%lld", (long long) size);
        fclose(note);
        rename(fresh, beside); /* whole, also when the process is killed now */
    }
}

static void forget(const char *path) {
    char beside[PATH_MAX + 16];
    long long covered = 0;
    snprintf(beside, sizeof beside, "%s.synced", path);
    FILE *note = fopen(beside, "r");
    if (note) {
        if (fscanf(note, "%lld", &covered) != 1) covered = 0;
        fclose(note);
    }
    int file = open(path, O_WRONLY | O_CLOEXEC);
    struct stat now;
    if (file >= 0 && fstat(file, &now) == 0 && now.st_size > covered) {
        (void) !ftruncate(file, covered);
        (void) !ftruncate(file, now.st_size);
    }
    if (file >= 0) close(file);
}

static int sync_with(int (*real)(int), int file) {
    char path[PATH_MAX];
    struct stat before;
    if (!concerns(file, path)) return real(file);
    if (control->sync_fault && control->sync_passes-- <= 0) {
        if (control->sync_fault < 0) {
            __atomic_add_fetch(&control->syncs_hanging, 1, __ATOMIC_SEQ_CST);
            while (control->sync_fault < 0) usleep(1000);
            __atomic_sub_fetch(&control->syncs_hanging, 1, __ATOMIC_SEQ_CST);
        } else {
            if (control->forgets) forget(path);
            control->syncs_failed++;
            errno = (int) control->sync_fault;
            return -1;
        }
    }
    if (control->sync_delay > 0) usleep((useconds_t) control->sync_delay);
    if (fstat(file, &before) != 0) before.st_size = 0;
    int done = real(file);
    if (done == 0 && control->forgets) note_synced(path, before.st_size);
    return done;
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int)) dlsym(RTLD_NEXT, "fsync");
    return sync_with(real, file);
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int)) dlsym(RTLD_NEXT, "fdatasync");
    return sync_with(real, file);
}

static ssize_t room_for(int file, size_t size) {
    char path[PATH_MAX];
    if (!control || control->write_room < 0 || !concerns(file, path)) return (ssize_t) size;
    if (control->write_room == 0) {
        control->writes_failed++;
        errno = control->write_fault ? (int) control->write_fault : ENOSPC;
        return -1;
    }
    size_t taken = size < (size_t) control->write_room ? size : (size_t) control->write_room;
    control->write_room -= (long long) taken;
    return (ssize_t) taken;
}

ssize_t write(int file, const void *bytes, size_t size) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = (ssize_t(*)(int, const void *, size_t)) dlsym(RTLD_NEXT, "write");
    ssize_t room = room_for(file, size);
    return room < 0 ? -1 : real(file, bytes, (size_t) room);
}

ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = (ssize_t(*)(int, const void *, size_t, off64_t)) dlsym(RTLD_NEXT, "pwrite64");
    ssize_t room = room_for(file, size);
    return room < 0 ? -1 : real(file, bytes, (size_t) room, at);
}

/* The same on 64-bit systems, under the name that a library may have been linked with. */
ssize_t pwrite(int file, const void *bytes, size_t size, off_t at) {
    return pwrite64(file, bytes, size, (off64_t) at);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    static ssize_t (*real)(int, const struct iovec *, int);
    if (!real) real = (ssize_t(*)(int, const struct iovec *, int)) dlsym(RTLD_NEXT, "writev");
    size_t size = 0;
    for (int each = 0; each < count; each++) size += parts[each].iov_len;
    ssize_t room = room_for(file, size);
    if (room < 0) return -1;
    if ((size_t) room == size) return real(file, parts, count);
    char *joined = malloc(size), *into = joined;
    for (int each = 0; each < count; each++) into = mempcpy(into, parts[each].iov_base, parts[each].iov_len);
    static ssize_t (*plain)(int, const void *, size_t);
    if (!plain) plain = (ssize_t(*)(int, const void *, size_t)) dlsym(RTLD_NEXT, "write");
    ssize_t done = plain(file, joined, (size_t) room);
    free(joined);
    return done;
}

/* The wall clock; the monotonic one stays as it is. */

static void shift(struct timespec *found) {
    long long nanos = (long long) found->tv_nsec + (control ? control->clock_shift : 0);
    found->tv_sec += nanos / 1000000000;
    nanos %= 1000000000;
    if (nanos < 0) {
        nanos += 1000000000;
        found->tv_sec--;
    }
    found->tv_nsec = nanos;
}

int clock_gettime(clockid_t clock, struct timespec *found) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = (int (*)(clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
    int done = real(clock, found);
    if (done == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(found);
    return done;
}

int gettimeofday(struct timeval *found, void *zone) {
    struct timespec now;
    (void) zone;
    clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}
