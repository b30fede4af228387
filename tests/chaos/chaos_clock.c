/* Shift the wall clock of a process by the seconds in the file CHAOS_CLOCK, which may change at any time.
 *
 * The monotonic clock and the times of files stay true. Deadlines by the wall clock are shifted back for the kernel.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SINCE_1991 666666666 /* later deadlines are by the wall clock, earlier ones by the monotonic clock */

static volatile const long *offset;

static long shift(void) { return offset ? *offset : 0; }

__attribute__((constructor)) static void map(void) {
    const char *path = getenv("CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) offset = mapped;
    if (file >= 0) close(file);
}

static const struct timespec *trued(const struct timespec *until, struct timespec *copy) {
    if (!until || until->tv_sec < SINCE_1991) return until;
    *copy = *until;
    copy->tv_sec -= shift();
    return copy;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*next)(clockid_t, struct timespec *);
    if (!next) next = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = next(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec time;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &time);
    now->tv_sec = time.tv_sec;
    now->tv_usec = time.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    if (now) *now = time.tv_sec;
    return time.tv_sec;
}

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    struct timespec copy;
    if (!next) next = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    return next(cond, mutex, trued(until, &copy));
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    static int (*next)(sem_t *, const struct timespec *);
    struct timespec copy;
    if (!next) next = dlsym(RTLD_NEXT, "sem_timedwait");
    return next(semaphore, trued(until, &copy));
}

long syscall(long number, ...) { /* Ray's libraries call futex directly */
    static long (*next)(long, ...);
    struct timespec copy;
    long a[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(rest, long);
    va_end(rest);
    if (!next) next = dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_futex && a[1] & FUTEX_CLOCK_REALTIME) a[3] = (long)trued((const struct timespec *)a[3], &copy);
    return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
