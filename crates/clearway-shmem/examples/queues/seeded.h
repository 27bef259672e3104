/* Options and random numbers for the examples of queues. */
#ifndef SEEDED_H
#define SEEDED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct options {
    uint64_t seed, words, updates;
    const char *mode;
};

/* Parses `-s SEED -w WORDS -n UPDATES -m MODE`; each is optional. */
static inline struct options options_of(int argc, char **argv, const char *mode)
{
    struct options options = {1, 10000, 1000000, mode};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "-s") == 0)
            options.seed = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "-w") == 0)
            options.words = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "-n") == 0)
            options.updates = strtoull(argv[i + 1], NULL, 0);
        else if (strcmp(argv[i], "-m") == 0)
            options.mode = argv[i + 1];
    }
    return options;
}

/* Returns the next number of SplitMix64. */
static inline uint64_t next_number(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Returns a number below `limit`, which has at most 32 bits. */
static inline uint64_t number_below(uint64_t *state, uint64_t limit)
{
    return (next_number(state) >> 32) * limit >> 32;
}

/* Returns the initial state of PE `pe`. */
static inline uint64_t state_of(uint64_t seed, int pe)
{
    uint64_t state = seed * 0x100000001b3u + (uint64_t) pe;
    (void) next_number(&state);
    return state;
}

static inline double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double) now.tv_sec + 1e-9 * (double) now.tv_nsec;
}

#endif
