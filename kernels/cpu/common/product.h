// Products of dense matrices by torch's BLAS, for the registration half of a kernel file.
//
// A product is cut into tiles that depend on the problem only, and each runs on one thread: a BLAS that uses several
// may sum in another order for each number of threads. MKL does, and cuts a sum for all the threads that it may use
// even where it gets only one. Tiles of 128 rows and more lose nothing against one large product, and what else has to
// be done to a tile is done while it is in the cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "isa.h"
#include "parallel.h"
#include "single_product.h"

// A function of MKL, null where torch has none: sets the number of threads for the calling thread alone (0: the number
// that holds for all) and returns the one before.
extern "C" int MKL_Set_Num_Threads_Local(int) __attribute__((weak));

namespace seegera {

// While this object lives, MKL uses one thread for products of the calling thread.
class OneThreadOfMkl {
 public:
    OneThreadOfMkl() : before_(MKL_Set_Num_Threads_Local ? MKL_Set_Num_Threads_Local(1) : 0) {}
    OneThreadOfMkl(const OneThreadOfMkl&) = delete;
    OneThreadOfMkl& operator=(const OneThreadOfMkl&) = delete;
    ~OneThreadOfMkl() {
        if (MKL_Set_Num_Threads_Local) {
            MKL_Set_Num_Threads_Local(before_);
        }
    }

 private:
    int before_;
};

// on_threads with all threads. Products inside run on one thread, so that their bits do not depend on the number of
// threads. This holds for a single task too, which for_each_task runs in the calling thread.
template <typename Work>
void on_every_thread(const Work& work) {
    const Precision precision = ProductsAt::current();
    on_threads(num_threads(), [&](const auto& next) {
        const OneThreadOfMkl one;
        const ProductsAt same(precision);
        work(next);
    });
}

// for_each_task for tasks with products in them.
template <typename Run>
void for_each_product(int64_t count, const Run& run) {
    on_every_thread([&](const auto& next) {
        for (int64_t task = next(); task < count; task = next()) {
            run(task);
        }
    });
}

// --- Products in tiles -----------------------------------------------------------------------------------------------

// The left side of a product: lines in memory, or lines that `fill` makes, a tile at a time, and that are never stored.
template <typename T>
struct Lines {
    Matrix<const T> memory{};  // where fill is set, only its numbers of rows and columns count
    // (line_begin, line_end, column_begin, column_end, out, out_stride)
    std::function<void(int64_t, int64_t, int64_t, int64_t, T*, int64_t)> fill;

    int64_t count() const { return memory.rows; }
    int64_t width() const { return memory.columns; }
};

// One term of a sum of products.
template <typename T>
struct Term {
    Lines<T> left;
    Matrix<const T> right;
};

// Lines of a tile: BLAS packs the right side anew for each.
constexpr int64_t kTileLines = 256;
// Columns of what `fill` makes at a time: of float32, a tile is half a second-level cache.
constexpr int64_t kTileColumns = 512;

// [0, lines) in tiles of at most kTileLines: as many as keep 2 or 4 threads equally busy, where there is work for them.
class LineTiles {
 public:
    explicit LineTiles(int64_t lines)
        : lines_(lines), units_((lines + kUnit - 1) / kUnit), count_((lines + kTileLines - 1) / kTileLines) {
        if (lines >= kTileLines) {
            count_ = (count_ + 3) / 4 * 4;
        }
    }
    int64_t count() const { return count_; }
    int64_t begin(int64_t tile) const { return std::min(lines_, tile * units_ / count_ * kUnit); }

 private:
    int64_t lines_;
    int64_t units_;
    int64_t count_;
};

// Columns of out in one task.
constexpr int64_t kTaskColumns = 1024;

// out = the sum of the terms, or out += it. after(line_begin, line_end) runs on lines that are done, while they are in
// the cache; their columns are then complete.
template <typename T>
void multiply_lines(const Matrix<T>& out, const std::vector<Term<T>>& terms, bool add,
                    const std::function<void(int64_t, int64_t)>& after = nullptr) {
    int64_t filled = 0;
    for (const Term<T>& term : terms) {
        if (term.left.fill) {
            filled = std::max(filled, std::min(term.left.width(), kTileColumns));
        }
    }
    // Columns are cut only where no line would be made twice and `after` does not need whole lines.
    const int64_t parts = filled > 0 || after ? 1 : std::max<int64_t>(1, out.columns / kTaskColumns);
    const LineTiles tiles(out.rows);
    on_every_thread([&](const auto& next) {
        const Scratch<T> scratch(filled * kTileLines);
        for (int64_t task = next(); task < tiles.count() * parts; task = next()) {
            const int64_t begin = tiles.begin(task / parts), end = tiles.begin(task / parts + 1);
            const int64_t first = task % parts * out.columns / parts, last = (task % parts + 1) * out.columns / parts;
            const Matrix<T> target = out.part(begin, end, first, last);
            bool more = add;
            for (const Term<T>& term : terms) {
                const int64_t width = term.left.width();
                const Matrix<const T> right = term.right.part(0, width, first, last);
                if (!term.left.fill) {
                    multiply<T>(target, term.left.memory.row_range(begin, end), right, more ? 1 : 0);
                    more = true;
                    continue;
                }
                for (int64_t column = 0; column < width || column == 0; column += kTileColumns) {
                    const int64_t stop = std::min(width, column + kTileColumns);
                    term.left.fill(begin, end, column, stop, scratch.get(), stop - column);
                    const auto left = contiguous_matrix<const T>(scratch.get(), end - begin, stop - column);
                    multiply<T>(target, left, right.row_range(column, stop), more ? 1 : 0);
                    more = true;
                }
            }
            if (after) {
                after(begin, end);
            }
        }
    });
}

// out [width, columns] = the lines' transpose @ right [lines, columns].
template <typename T>
void multiply_transposed(const Matrix<T>& out, const Lines<T>& left, const Matrix<const T>& right) {
    // The sum over lines is cut into groups with separate results, which are added in their order. A group has about as
    // many lines as a product needs for its full rate; where one block has all columns, there are groups for 2 or 4
    // threads.
    constexpr int64_t group_lines = 768, fewest_lines = 256, most_groups = 16, most_partial = int64_t{1} << 24;
    constexpr int64_t tile_lines = 352, block_columns = 512;
    const int64_t lines = left.count(), width = left.width(), size = width * out.columns;
    const int64_t blocks = (width + block_columns - 1) / block_columns;
    const int64_t most = std::min({lines / fewest_lines, most_groups, most_partial / std::max<int64_t>(1, size)});
    int64_t groups = std::max<int64_t>(1, std::min(lines / group_lines, most));
    if (blocks < 4 && most >= 4) {
        groups = std::min((groups + 3) / 4 * 4, most / 4 * 4);
    }
    const Scratch<T> partial(groups > 1 ? groups * size : 0);
    on_every_thread([&](const auto& next) {
        const Scratch<T> scratch(left.fill ? tile_lines * block_columns : 0);
        for (int64_t task = next(); task < groups * blocks; task = next()) {
            const int64_t group = task / blocks, begin = group * lines / groups, end = (group + 1) * lines / groups;
            const int64_t first = task % blocks * block_columns, last = std::min(width, first + block_columns);
            const Matrix<T> whole =
                groups > 1 ? contiguous_matrix(partial.get() + group * size, width, out.columns) : out;
            const Matrix<T> target = whole.row_range(first, last);
            if (!left.fill) {
                multiply<T>(target, left.memory.part(begin, end, first, last).flipped(), right.row_range(begin, end));
                continue;
            }
            const int64_t tiles = std::max<int64_t>(1, (end - begin + tile_lines - 1) / tile_lines);
            for (int64_t tile_at = 0; tile_at < tiles; ++tile_at) {
                const int64_t line = begin + tile_at * (end - begin) / tiles;
                const int64_t stop = begin + (tile_at + 1) * (end - begin) / tiles;
                left.fill(line, stop, first, last, scratch.get(), last - first);
                const auto tile = contiguous_matrix<const T>(scratch.get(), stop - line, last - first);
                multiply<T>(target, tile.flipped(), right.row_range(line, stop), tile_at > 0 ? 1 : 0);
            }
        }
    });
    if (groups > 1) {
        for_each_range(width, (int64_t{1} << 14) / std::max<int64_t>(1, out.columns), [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; ++row) {
                T* target = out.data + row * out.row_stride;
                const T* source = partial.get() + row * out.columns;
                for (int64_t column = 0; column < out.columns; ++column) {
                    target[column] = source[column] + source[size + column];
                }
                for (int64_t group = 2; group < groups; ++group) {
                    const T* next = source + group * size;
                    for (int64_t column = 0; column < out.columns; ++column) {
                        target[column] += next[column];
                    }
                }
            }
        });
    }
}

}  // namespace seegera
