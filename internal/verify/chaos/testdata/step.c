/*
 * Steps the clock of a process, by LD_PRELOAD: each reading of the time of day has an offset added, in nanoseconds, that stands in the
 * file $CHAOS_CLOCKS/PORT, where PORT follows --port in the process's arguments. The file is made if there is none. A process without
 * --port has the true time. The monotonic clock is left alone.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const long long none;
static volatile const long long *offset = &none;

__attribute__((constructor)) static void attach(void) {
  const char *dir = getenv("CHAOS_CLOCKS");
  char args[1 << 16], name[4096];
  int file = open("/proc/self/cmdline", O_RDONLY);
  if (dir == NULL || file < 0) {
    return;
  }
  ssize_t size = read(file, args, sizeof args - 1);
  close(file);
  if (size <= 0) {
    return;
  }
  args[size] = 0;
  for (char *arg = args; arg < args + size; arg += strlen(arg) + 1) {
    char *next = arg + strlen(arg) + 1;
    if (strcmp(arg, "--port") != 0 || next >= args + size) {
      continue;
    }
    snprintf(name, sizeof name, "%s/%s", dir, next);
    file = open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0) {
      return;
    }
    if (lseek(file, 0, SEEK_END) < (off_t)sizeof *offset && ftruncate(file, sizeof *offset) != 0) {
      close(file);
      return;
    }
    void *mapped = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) {
      offset = mapped;
    }
    return;
  }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int failed = (int)syscall(SYS_clock_gettime, clock, now);
  if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    long long ns = now->tv_sec * 1000000000LL + now->tv_nsec + *offset;
    now->tv_sec = ns / 1000000000LL;
    now->tv_nsec = ns % 1000000000LL;
  }
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec precise;
  (void)zone;
  if (now == NULL || clock_gettime(CLOCK_REALTIME, &precise) != 0) {
    return now == NULL ? 0 : -1;
  }
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *now) {
  struct timespec precise;
  if (clock_gettime(CLOCK_REALTIME, &precise) != 0) {
    return (time_t)-1;
  }
  if (now != NULL) {
    *now = precise.tv_sec;
  }
  return precise.tv_sec;
}
