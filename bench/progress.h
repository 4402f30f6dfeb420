/* One line on stderr for those who wait. */
#ifndef BENCH_PROGRESS_H
#define BENCH_PROGRESS_H

/* Step `step` of `steps` of the case begins. Called on one rank. On a terminal the line is written anew each time; elsewhere lines are some seconds apart. */
void bench_progress(const char *name, int n, int step, int steps);
/* Results come next: take the line away. */
void bench_progress_end(void);

#endif
