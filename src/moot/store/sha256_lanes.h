/* SHA-256 (FIPS 180-4) of many texts at once, for processors with wide vectors and no instructions for it.

   Sixteen texts go through the rounds side by side, a block of each at a time, and one that ends makes room for
   the next. On such a processor that is several times as quick as one text after the other. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A text with a byte before it and one behind it; -1 for none. */
typedef struct {
    const char *text;
    size_t size;
    int first;
    int last;
    char *digest;
} sha256_job;

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <cpuid.h>

enum { SHA256_LANES = 16, SHA256_BLOCK = 64 };

typedef uint32_t sha256_words __attribute__((vector_size(4 * SHA256_LANES)));

static const uint32_t sha256_begin[8] = {
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
};

static const uint32_t sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

#define SHA256_TURN(x, n) ((x) >> (n) | (x) << (32 - (n)))

/* One block of each lane. */
static inline __attribute__((always_inline)) void sha256_rounds(
    sha256_words *state, const unsigned char (*blocks)[SHA256_BLOCK])
{
    sha256_words w[16];
    for (int t = 0; t < 16; t++) {
        uint32_t words[SHA256_LANES];
        for (int lane = 0; lane < SHA256_LANES; lane++) {
            uint32_t word;
            memcpy(&word, blocks[lane] + 4 * t, 4);
            words[lane] = __builtin_bswap32(word);
        }
        memcpy(&w[t], words, sizeof words);
    }
    sha256_words a = state[0], b = state[1], c = state[2], d = state[3];
    sha256_words e = state[4], f = state[5], g = state[6], h = state[7];
    for (int from = 0; from < 64; from += 16) {
#pragma GCC unroll 16
        for (int t = 0; t < 16; t++) {
            if (from) {
                sha256_words early = w[(t + 1) & 15], late = w[(t + 14) & 15];
                w[t] += (SHA256_TURN(early, 7) ^ SHA256_TURN(early, 18) ^ early >> 3) + w[(t + 9) & 15]
                      + (SHA256_TURN(late, 17) ^ SHA256_TURN(late, 19) ^ late >> 10);
            }
            sha256_words one = h + (SHA256_TURN(e, 6) ^ SHA256_TURN(e, 11) ^ SHA256_TURN(e, 25))
                             + (g ^ (e & (f ^ g))) + sha256_constants[from + t] + w[t];
            sha256_words two = (SHA256_TURN(a, 2) ^ SHA256_TURN(a, 13) ^ SHA256_TURN(a, 22))
                             + ((a & b) | (c & (a | b)));
            h = g; g = f; f = e; e = d + one;
            d = c; c = b; b = a; a = one + two;
        }
    }
    state[0] += a; state[1] += b; state[2] += c; state[3] += d;
    state[4] += e; state[5] += f; state[6] += g; state[7] += h;
}

__attribute__((target("avx512f"))) static void sha256_rounds_512(
    sha256_words *state, const unsigned char (*blocks)[SHA256_BLOCK])
{
    sha256_rounds(state, blocks);
}

__attribute__((target("avx2"))) static void sha256_rounds_256(
    sha256_words *state, const unsigned char (*blocks)[SHA256_BLOCK])
{
    sha256_rounds(state, blocks);
}

static size_t sha256_blocks(const sha256_job *job)
{
    return ((job->first >= 0) + job->size + (job->last >= 0) + 9 + SHA256_BLOCK - 1) / SHA256_BLOCK;
}

/* The block of this number, with what FIPS 180-4 has behind the text. */
static void sha256_put_block(const sha256_job *job, size_t number, unsigned char *into)
{
    size_t head = job->first >= 0, total = head + job->size + (job->last >= 0), at = SHA256_BLOCK * number;
    size_t from = at > head ? at - head : 0, until = at + SHA256_BLOCK - head;
    if (at >= head && until <= job->size) {
        memcpy(into, job->text + from, SHA256_BLOCK);
        return;
    }
    memset(into, 0, SHA256_BLOCK);
    if (at == 0 && head)
        into[0] = (unsigned char) job->first;
    if (until > job->size)
        until = job->size;
    if (from < until)
        memcpy(into + head + from - at, job->text + from, until - from);
    /* What is not in this block is below its beginning, which is a large number, or behind its end. */
    if (job->last >= 0 && total - 1 - at < SHA256_BLOCK)
        into[total - 1 - at] = (unsigned char) job->last;
    if (total - at < SHA256_BLOCK)
        into[total - at] = 0x80;
    if (at + SHA256_BLOCK >= total + 9)
        for (int each = 0; each < 8; each++)
            into[SHA256_BLOCK - 1 - each] = (unsigned char) ((uint64_t) total * 8 >> 8 * each);
}

static int sha256_has_lanes(void)
{
    unsigned int a, b, c, d;
    int has_instructions = __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 29 & 1;
    return !has_instructions && __builtin_cpu_supports("avx2");
}

/* Of texts of one length, a digest may take the place of its own text, or of that of a job before. */
static void sha256_many(const sha256_job *jobs, size_t count)
{
    union { sha256_words vectors[8]; uint32_t words[8][SHA256_LANES]; } state;
    unsigned char blocks[SHA256_LANES][SHA256_BLOCK] = {{0}};
    const sha256_job *job[SHA256_LANES] = {0};
    size_t done[SHA256_LANES] = {0}, next = 0, active = 0;
    int is_wide = __builtin_cpu_supports("avx512f");
    memset(&state, 0, sizeof state);
    do {
        for (int lane = 0; lane < SHA256_LANES; lane++) {
            if (!job[lane] && next < count) {
                job[lane] = &jobs[next++];
                done[lane] = 0;
                active++;
                for (int each = 0; each < 8; each++)
                    state.words[each][lane] = sha256_begin[each];
            }
            if (job[lane])
                sha256_put_block(job[lane], done[lane]++, blocks[lane]);
        }
        if (!active)
            return;
        if (is_wide)
            sha256_rounds_512(state.vectors, blocks);
        else
            sha256_rounds_256(state.vectors, blocks);
        for (int lane = 0; lane < SHA256_LANES; lane++) {
            if (job[lane] && done[lane] == sha256_blocks(job[lane])) {
                for (int each = 0; each < 8; each++) {
                    uint32_t word = __builtin_bswap32(state.words[each][lane]);
                    memcpy(job[lane]->digest + 4 * each, &word, 4);
                }
                job[lane] = NULL;
                active--;
            }
        }
    } while (1);
}

#else
static int sha256_has_lanes(void) { return 0; }
static void sha256_many(const sha256_job *jobs, size_t count) { (void) jobs; (void) count; }
#endif
