#pragma once

#include <cstdint>

namespace seegera::cuda {

// Counter-based random numbers: Philox 4x32-10 (Salmon et al., SC '11). A number is addressed, not stored, exactly as
// seegera_fast/reference/random.py does: the key is the seed, the counter is (row low, row high, column / 4,
// draw + (stream << 24)), and column % 4 picks one of the four words.

// One stream for each use, so that one seed may serve several: numbers of random.py. draw_subset takes its stream as an
// argument.
enum PhiloxStream : uint32_t { kNoiseStream, kDropoutStream };

struct PhiloxWords {
    uint32_t word[4];
};

// The four words of the column group `group` at (row, draw) of a stream, where stream_and_draw = draw + (stream << 24).
__device__ __forceinline__ PhiloxWords philox(int64_t seed, int64_t row, uint32_t group, uint32_t stream_and_draw) {
    const uint64_t counter = static_cast<uint64_t>(row), key = static_cast<uint64_t>(seed);
    uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
    uint32_t c2 = group, c3 = stream_and_draw;
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint64_t first = static_cast<uint64_t>(c0) * 0xd2511f53u;
        const uint64_t second = static_cast<uint64_t>(c2) * 0xcd9e8d57u;
        c0 = static_cast<uint32_t>(second >> 32) ^ c1 ^ k0;
        c2 = static_cast<uint32_t>(first >> 32) ^ c3 ^ k1;
        c1 = static_cast<uint32_t>(second);
        c3 = static_cast<uint32_t>(first);
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return {{c0, c1, c2, c3}};
}

// The one word at (row, draw, column).
__device__ __forceinline__ uint32_t philox_word(int64_t seed, PhiloxStream stream, int64_t row, int64_t draw,
                                                int64_t column) {
    const uint32_t last = static_cast<uint32_t>(draw) + (static_cast<uint32_t>(stream) << 24);
    const PhiloxWords words = philox(seed, row, static_cast<uint32_t>(column >> 2), last);
    const uint32_t low = column & 1 ? words.word[1] : words.word[0];
    const uint32_t high = column & 1 ? words.word[3] : words.word[2];
    return column & 2 ? high : low;
}

}  // namespace seegera::cuda
