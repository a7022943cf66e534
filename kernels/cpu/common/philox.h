// Counter-based random numbers, for the kernel half of a file: Philox 4x32-10 (Salmon et al., SC '11).
//
// A number is addressed, not stored, exactly as seegera_fast/reference/random.py does: the key is the seed, the counter
// is (row low, row high, column / 4, draw + (stream << 24)), and column % 4 picks one of the four words.
#pragma once

#include <cstdint>

#include "isa.h"
#include "math.h"

namespace seegera {
namespace SEEGERA_ISA {

// One stream for each use, so that one seed may serve several: the numbers of random.py.
enum PhiloxStream : uint32_t {
    kNoiseStream,
    kDropoutStream,
    kNormalStream,
    kNegativesStream,
    kEdgesStream,
    kEntriesStream,
};

struct PhiloxKey {
    uint32_t low;
    uint32_t high;
    explicit PhiloxKey(int64_t seed)
        : low(static_cast<uint32_t>(seed)), high(static_cast<uint32_t>(static_cast<uint64_t>(seed) >> 32)) {}
};

constexpr uint32_t kPhiloxFirst = 0xd2511f53;
constexpr uint32_t kPhiloxSecond = 0xcd9e8d57;
constexpr uint32_t kPhiloxKeyLow = 0x9e3779b9;
constexpr uint32_t kPhiloxKeyHigh = 0xbb67ae85;
constexpr int kPhiloxRounds = 10;

inline uint32_t philox_draw(uint32_t stream, int64_t draw) { return static_cast<uint32_t>(draw) + (stream << 24); }

// The four words of one counter.
inline void philox_words(PhiloxKey key, int64_t row, uint32_t draw, int64_t group, uint32_t (&words)[4]) {
    uint32_t c0 = static_cast<uint32_t>(row), c1 = static_cast<uint32_t>(static_cast<uint64_t>(row) >> 32);
    uint32_t c2 = static_cast<uint32_t>(group), c3 = draw;
    for (int round = 0; round < kPhiloxRounds; ++round) {
        const uint64_t first = static_cast<uint64_t>(c0) * kPhiloxFirst;
        const uint64_t second = static_cast<uint64_t>(c2) * kPhiloxSecond;
        c0 = static_cast<uint32_t>(second >> 32) ^ c1 ^ key.low;
        c2 = static_cast<uint32_t>(first >> 32) ^ c3 ^ key.high;
        c1 = static_cast<uint32_t>(second);
        c3 = static_cast<uint32_t>(first);
        key.low += kPhiloxKeyLow;
        key.high += kPhiloxKeyHigh;
    }
    words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}

// --- Vectors of counters ---------------------------------------------------------------------------------------------

// One counter word a lane, in the low half of 64 bits: that is what the widening multiply takes and gives.
using Words = IntegerVector<uint64_t, kVectorBytes>;
// Counters side by side.
constexpr int kCounters = kVectorBytes / 8;
// Consecutive 32-bit words.
using Packed = IntegerVector<uint32_t, kVectorBytes>;

// The products of the low halves of the lanes with `by`, 64 bits each.
inline Words multiply_low(Words a, uint32_t by) {
#if defined(__AVX512F__)
    return bits_as<Words>(_mm512_maskz_mul_epu32(0xff, bits_as<__m512i>(a), _mm512_set1_epi64(by)));
#elif defined(__AVX2__)
    return bits_as<Words>(_mm256_mul_epu32(bits_as<__m256i>(a), _mm256_set1_epi64x(by)));
#elif defined(__x86_64__)
    return bits_as<Words>(_mm_mul_epu32(bits_as<__m128i>(a), _mm_set1_epi64x(by)));
#elif defined(__aarch64__)
    return bits_as<Words>(vmull_n_u32(vmovn_u64(bits_as<uint64x2_t>(a)), by));
#else
    return (a & 0xffffffff) * by;
#endif
}

// In place: four counter words a lane become four random words a lane. The upper halves of the lanes may hold anything,
// before and after.
inline void philox_rounds(PhiloxKey key, Words& c0, Words& c1, Words& c2, Words& c3) {
    for (int round = 0; round < kPhiloxRounds; ++round) {
        const Words first = multiply_low(c0, kPhiloxFirst);
        const Words second = multiply_low(c2, kPhiloxSecond);
        c0 = (second >> 32) ^ c1 ^ static_cast<uint64_t>(key.low);
        c2 = (first >> 32) ^ c3 ^ static_cast<uint64_t>(key.high);
        c1 = second;
        c3 = first;
        key.low += kPhiloxKeyLow;
        key.high += kPhiloxKeyHigh;
    }
}

inline Words lane_numbers() {
    Words lanes{};
    for (int i = 0; i < kCounters; ++i) {
        lanes[i] = i;
    }
    return lanes;
}

// The words of one (row, draw) at the column groups group, group + 1, ...: word w of group + i in the low half of lane
// i.
inline void philox_groups(PhiloxKey key, int64_t row, uint32_t draw, int64_t group, Words (&words)[4]) {
    words[0] = Words{} + static_cast<uint32_t>(row);
    words[1] = Words{} + static_cast<uint32_t>(static_cast<uint64_t>(row) >> 32);
    words[2] = lane_numbers() + static_cast<uint64_t>(group);
    words[3] = Words{} + draw;
    philox_rounds(key, words[0], words[1], words[2], words[3]);
}

// The same for one column group of the rows row, row + 1, ...: for draws narrower than a block.
inline void philox_rows(PhiloxKey key, int64_t row, uint32_t draw, int64_t group, Words (&words)[4]) {
    words[0] = lane_numbers() + static_cast<uint64_t>(row);
    words[1] = words[0] >> 32;
    words[2] = Words{} + static_cast<uint64_t>(group);
    words[3] = Words{} + draw;
    philox_rounds(key, words[0], words[1], words[2], words[3]);
}

// The low halves of `low` and `high` as the two halves of each lane.
inline Words join_halves(Words low, Words high) { return (low & 0xffffffff) | (high << 32); }

// a0 b0 a1 b1 ...: the first half of that in `a`, the second in `b`.
template <typename V>
inline void interleave(V& a, V& b) {
    V low, high;
    constexpr int lanes = sizeof(V) / sizeof(a[0]);
    if constexpr (lanes == 2) {
        low = __builtin_shufflevector(a, b, 0, 2);
        high = __builtin_shufflevector(a, b, 1, 3);
    } else if constexpr (lanes == 4) {
        low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
        high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    } else if constexpr (lanes == 8) {
        low = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
        high = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
    } else {
        static_assert(lanes == 16, "vectors have 2 to 16 lanes");
        low = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        high = __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    a = low;
    b = high;
}

// Columns of one block: a pair of Packed vectors.
constexpr int kBlockColumns = 4 * kCounters;

// The words of one (row, draw) at the columns 4 group, 4 group + 1, ..., kBlockColumns of them in order.
inline void philox_block(PhiloxKey key, int64_t row, uint32_t draw, int64_t group, Packed (&words)[2]) {
    Words w[4];
    philox_groups(key, row, draw, group, w);
    Words low = join_halves(w[0], w[1]), high = join_halves(w[2], w[3]);
    interleave(low, high);
    words[0] = bits_as<Packed>(low);
    words[1] = bits_as<Packed>(high);
}

// The words of one (row, draw) at the columns [first, first + count), from memory to memory.
inline void philox_columns(PhiloxKey key, int64_t row, uint32_t draw, int64_t first, int64_t count, uint32_t* out) {
    int64_t group = first / 4;
    // What comes before `first` in its group is dropped, what comes after the last column too.
    for (int64_t skip = first % 4, done = 0; done < count; group += kCounters) {
        Packed words[2];
        philox_block(key, row, draw, group, words);
        const int64_t taken = kBlockColumns - skip < count - done ? kBlockColumns - skip : count - done;
        if (taken == kBlockColumns) {
            __builtin_memcpy(out + done, words, sizeof(words));
        } else {
            __builtin_memcpy(out + done, reinterpret_cast<const uint32_t*>(words) + skip, taken * sizeof(uint32_t));
        }
        done += taken;
        skip = 0;
    }
}

// The words at scattered (row, column) of one draw, one a lane in the low half, zeros above.
inline Words philox_entries(PhiloxKey key, Words row, uint32_t draw, Words column) {
    Words c0 = row, c1 = row >> 32, c2 = column >> 2, c3 = Words{} + draw;
    philox_rounds(key, c0, c1, c2, c3);
    const auto odd = (column & 1) != 0;
    const Words low = odd ? c1 : c0, high = odd ? c3 : c2;
    return ((column & 2) != 0 ? high : low) & 0xffffffff;
}

// --- What the words are used for -------------------------------------------------------------------------------------

// An event of probability round(probability * 2^32) / 2^32, threshold being that numerator, 0 to 2^32.
class Event {
 public:
    explicit Event(int64_t threshold)
        : last_(static_cast<uint32_t>(threshold - 1)), possible_(threshold > 0 ? 0xffffffffu : 0u) {}
    // All ones where the event happens, else 0.
    Packed happens(const Packed& words) const { return bits_as<Packed>(words <= last_) & possible_; }
    bool happens(uint32_t word) const { return possible_ != 0 && word <= last_; }

 private:
    uint32_t last_;
    uint32_t possible_;
};

// The vectors of T that a block of columns fills.
template <typename T>
constexpr int kPhiloxVectors = kBlockColumns * sizeof(T) / kVectorBytes;

// Masks of 32-bit lanes as masks for vectors of T.
template <typename T>
inline void spread(const Packed (&masks)[2], Mask<Vector<T, kVectorBytes>> (&spread)[kPhiloxVectors<T>]) {
    if constexpr (sizeof(T) == sizeof(float)) {
        __builtin_memcpy(&spread, &masks, sizeof(spread));
    } else {
        typedef IntegerVector<int32_t, kVectorBytes / 2> Half;
        Half halves[4];
        __builtin_memcpy(&halves, &masks, sizeof(halves));
        for (int i = 0; i < 4; ++i) {
            spread[i] = __builtin_convertvector(halves[i], Mask<Vector<T, kVectorBytes>>);
        }
    }
}

// Uniform in [0, below): the high half of a 64-bit draw times `below`.
inline int64_t philox_integer(PhiloxKey key, uint32_t stream, int64_t index, int64_t below) {
    __extension__ typedef unsigned __int128 Wide;
    uint32_t words[4];
    philox_words(key, index, philox_draw(stream, 0), 0, words);
    const uint64_t draw = static_cast<uint64_t>(words[0]) << 32 | words[1];
    return static_cast<int64_t>(static_cast<Wide>(draw) * static_cast<uint64_t>(below) >> 64);
}

// Standard normal numbers of one (row, draw) at the columns 4 group, ..., kBlockColumns of them, in order, by
// Box-Muller from pairs of 24-bit uniforms.
template <typename T>
inline void normal_block(PhiloxKey key, int64_t row, uint32_t draw, int64_t group,
                         Vector<T, kVectorBytes> (&normals)[kPhiloxVectors<T>]) {
    typedef Vector<T, kVectorBytes> V;
    constexpr T unit = T(1) / (1 << 24);
    Words w[4];
    philox_groups(key, row, draw, group, w);
    if constexpr (sizeof(T) == sizeof(float)) {
        // The even lanes take the first pair of each group, the odd ones the second.
        typedef IntegerVector<int32_t, kVectorBytes> Integers;
        const Packed first = bits_as<Packed>(join_halves(w[0], w[2])) >> 8;
        const Packed second = bits_as<Packed>(join_halves(w[1], w[3])) >> 8;
        const V u = __builtin_convertvector(bits_as<Integers>(first + 1), V) * unit;
        const V turns = __builtin_convertvector(bits_as<Integers>(second), V) * unit;
        const V radius = sqrt(log(u) * -2);
        V sine, cosine;
        sine_cosine_of_turns(turns, sine, cosine);
        normals[0] = radius * cosine;
        normals[1] = radius * sine;
        interleave(normals[0], normals[1]);
    } else {
        // An integer below 2^52 to double: its bits behind those of 2^52.
        constexpr double whole = 4503599627370496.0;
        const auto number = [](Words integer) { return bits_as<V>(integer | bits_as<Words>(splat<V>(whole))) - whole; };
        Words pairs[2][2] = {{w[0], w[1]}, {w[2], w[3]}};
        V made[2][2];
        for (int i = 0; i < 2; ++i) {
            const V u = number(((pairs[i][0] & 0xffffffff) >> 8) + 1) * unit;
            const V turns = number((pairs[i][1] & 0xffffffff) >> 8) * unit;
            const V radius = sqrt(log(u) * -2);
            V sine, cosine;
            sine_cosine_of_turns(turns, sine, cosine);
            made[i][0] = radius * cosine;
            made[i][1] = radius * sine;
            interleave(made[i][0], made[i][1]);
        }
        // made[i][half]: the pairs i of the groups in that half of the lanes; the two pairs of a group go side by side.
        for (int half = 0; half < 2; ++half) {
            typedef Vector<double, 16> Pair;
            Pair from[2][kVectorBytes / 16], to[2 * (kVectorBytes / 16)];
            __builtin_memcpy(from[0], &made[0][half], kVectorBytes);
            __builtin_memcpy(from[1], &made[1][half], kVectorBytes);
            for (int p = 0; p < kVectorBytes / 16; ++p) {
                to[2 * p] = from[0][p];
                to[2 * p + 1] = from[1][p];
            }
            __builtin_memcpy(&normals[2 * half], to, sizeof(to));
        }
    }
}

}  // namespace SEEGERA_ISA
}  // namespace seegera
