// The scores of the pairs of two blocks of rows, and the cells that single out some of them.
#pragma once

#include <cstdint>

namespace seegera {

// Rows are padded to a whole number of vectors.
template <typename T>
struct ScoreTile {
    T* scores;
    int64_t stride;
    int64_t rows;
    int64_t columns;
};

// A cell of a tile: its row and its column in the halves of 32 bits.
constexpr int kCellBits = 16;

}  // namespace seegera
