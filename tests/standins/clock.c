/* The clocks of a process, put forward: what RL_OTEL_TEST_CLOCK names is a file with one number, in ns, that all of
 * them are ahead of the machine's. Loaded by LD_PRELOAD, it takes the place of the C library's functions that tell the
 * time or wait for one, as far as Python uses them; who waits wakes when the number rises.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { SECOND = 1000000000, SLICE = 1000000 }; /* ns; how long a wait goes without a look at the number */

static volatile int64_t *ahead; /* NULL: this process has the machine's clocks */
static int (*real_gettime)(clockid_t, struct timespec *);
static int (*real_cond_timed)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*real_cond_clock)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
static int (*real_sem_clock)(sem_t *, clockid_t, const struct timespec *);
static int (*real_sleep)(clockid_t, int, const struct timespec *, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    /* The C library keeps an older one of the same name, which plain dlsym may find. */
    real_cond_timed = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real_cond_timed) real_cond_timed = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    real_cond_clock = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    real_sem_clock = dlsym(RTLD_NEXT, "sem_clockwait");
    real_sleep = dlsym(RTLD_NEXT, "clock_nanosleep");
    const char *path = getenv("RL_OTEL_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (found != MAP_FAILED) ahead = found;
}

static int is_wall_or_monotonic(clockid_t clock) {
    return clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC || clock == CLOCK_REALTIME_COARSE ||
           clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_BOOTTIME;
}

static int64_t ns(const struct timespec *time) { return (int64_t)time->tv_sec * SECOND + time->tv_nsec; }

static struct timespec timespec_of(int64_t ns) {
    struct timespec time = {ns / SECOND, ns % SECOND};
    return time;
}

static int64_t now(clockid_t clock) {
    struct timespec time;
    real_gettime(clock, &time);
    return ns(&time);
}

static int64_t offset(void) { return ahead ? *ahead : 0; }

int clock_gettime(clockid_t clock, struct timespec *time) {
    int error = real_gettime(clock, time);
    if (!error && is_wall_or_monotonic(clock)) *time = timespec_of(ns(time) + offset());
    return error;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    int64_t moment = now(CLOCK_REALTIME) + offset();
    time->tv_sec = moment / SECOND;
    time->tv_usec = moment % SECOND / 1000;
    return 0;
}

time_t time(time_t *where) {
    time_t moment = (now(CLOCK_REALTIME) + offset()) / SECOND;
    if (where) *where = moment;
    return moment;
}

/* Until when a wait goes that ends at `until` by our clock: a slice at most. 1 where that is over. */
static int next(clockid_t clock, const struct timespec *until, struct timespec *slice) {
    int64_t moment = now(clock), left = ns(until) - offset() - moment;
    if (left <= 0) return 1;
    *slice = timespec_of(moment + (left < SLICE ? left : SLICE));
    return 0;
}

int sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *until) {
    struct timespec slice;
    while (!next(clock, until, &slice)) {
        if (!real_sem_clock(sem, clock, &slice)) return 0;
        if (errno != ETIMEDOUT) return -1;
    }
    if (!sem_trywait(sem)) return 0;
    errno = ETIMEDOUT;
    return -1;
}

int sem_timedwait(sem_t *restrict sem, const struct timespec *restrict until) {
    return sem_clockwait(sem, CLOCK_REALTIME, until);
}

/* Who waits for a condition looks again anyway: a wait that ends early is no fault. Which clock it is was said when the
 * condition was made; Python says the monotonic one. */
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    struct timespec real = timespec_of(ns(until) - offset());
    return real_cond_timed(cond, mutex, &real);
}

int pthread_cond_clockwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex, clockid_t clock,
                           const struct timespec *restrict until) {
    struct timespec real = timespec_of(ns(until) - offset());
    return real_cond_clock(cond, mutex, clock, &real);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wanted, struct timespec *left) {
    struct timespec slice, until = *wanted;
    if (!(flags & TIMER_ABSTIME)) until = timespec_of(ns(wanted) + now(clock) + offset());
    while (!next(clock, &until, &slice)) {
        int error = real_sleep(clock, TIMER_ABSTIME, &slice, left);
        if (error) return error;
    }
    return 0;
}
