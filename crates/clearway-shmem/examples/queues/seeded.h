/* Options, errors and random numbers for the examples of queues. */
#ifndef SEEDED_H
#define SEEDED_H

#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct options {
    uint64_t seed, words, updates;
    const char *mode;
};

/* Ends all PEs with status 2 and one sentence of PE 0. */
static inline void refuse(const char *what, const char *value, const char *works)
{
    if (shmem_my_pe() == 0)
        fprintf(stderr, "%s: `%s`; %s\n", what, value, works);
    shmem_global_exit(2);
}

static inline uint64_t number_of(const char *option, const char *text)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 0);
    if (*text < '0' || *text > '9' || *end != 0 || value == 0 || value > UINT32_MAX)
        refuse(option, text, "give a number from 1 to 4294967295");
    return value;
}

static inline const char *mode_of(const char *text, const char *const *modes)
{
    char works[128] = "use";
    for (int i = 0; modes[i] != NULL; i++) {
        if (strcmp(text, modes[i]) == 0)
            return modes[i];
        snprintf(works + strlen(works), sizeof works - strlen(works), "%s %s", i > 0 ? " or" : "", modes[i]);
    }
    refuse("-m", text, works);
    return NULL;
}

/* Parses `-s SEED -w WORDS -n UPDATES -m MODE`; each is optional. The first of `modes` is the default; a null ends
   them. Call it after shmem_init. */
static inline struct options options_of(int argc, char **argv, uint64_t updates, const char *const *modes)
{
    struct options options = {1, 10000, updates, modes[0]};
    for (int i = 1; i < argc; i += 2) {
        const char *option = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(option, "-s") == 0)
            options.seed = number_of(option, value);
        else if (strcmp(option, "-w") == 0)
            options.words = number_of(option, value);
        else if (strcmp(option, "-n") == 0)
            options.updates = number_of(option, value);
        else if (strcmp(option, "-m") == 0)
            options.mode = mode_of(value, modes);
        else
            refuse("there is no option", option, "use -s SEED, -w WORDS, -n UPDATES or -m MODE");
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
