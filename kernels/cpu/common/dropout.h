// Dropout of consecutive numbers, for the kernel half of a file.
#pragma once

#include <cstdint>

#include "isa.h"
#include "philox.h"
#include "vector.h"

namespace seegera {
namespace SEEGERA_ISA {

// target = source * scale where the word of (row, draw, column) says so, else 0, for `count` columns from `column` on;
// source and target begin with the first of them, and may be the same.
template <typename T>
inline void drop_columns(PhiloxKey key, const Event& dropped, T scale, int64_t row, int64_t draw, int64_t column,
                         int64_t count, const T* source, T* target) {
    using V = Vector<T, kVectorBytes>;
    const uint32_t stream = philox_draw(kDropoutStream, draw);
    int64_t done = 0;
    if (column % 4 != 0) {
        // Up to the next group of four, which a counter makes together.
        done = 4 - column % 4 < count ? 4 - column % 4 : count;
        uint32_t words[4];
        philox_words(key, row, stream, column / 4, words);
        for (int64_t i = 0; i < done; ++i) {
            target[i] = dropped.happens(words[column % 4 + i]) ? T(0) : source[i] * scale;
        }
    }
    for (; done < count; done += kBlockColumns) {
        Packed words[2];
        philox_block(key, row, stream, (column + done) / 4, words);
        const Packed kept[2] = {~dropped.happens(words[0]), ~dropped.happens(words[1])};
        Mask<V> masks[kPhiloxVectors<T>];
        spread<T>(kept, masks);
        for (int i = 0; i < kPhiloxVectors<T>; ++i) {
            const int64_t at = done + i * kLanes<V>, left = count - at;
            store_part(target + at, keep(masks[i], load_part<V>(source + at, left) * scale), left);
        }
    }
}

}  // namespace SEEGERA_ISA
}  // namespace seegera
