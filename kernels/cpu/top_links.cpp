// The pairs without a link that have the largest scores z_i . z_j, for each node or for the whole graph.
//
// BLAS computes the scores in tiles, each pair once: a tile of two blocks of rows serves the rows of both. The last
// bits of a product by BLAS depend on the tile and on the processor, so these scores only rule pairs out. Most are
// below what the k best of a row have at least, which one comparison tells. The others are kept with the bounds of
// their scores, and the scores of those that may be among the k best are computed in float64. So the result is that of
// the scores in float64, rounded once, whatever the tiles were.
//
// Floor: n^2 d operations. Memory: 2 k + 8 candidates for each row.
#include "top_links.h"

#ifdef SEEGERA_REGISTER

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "common/parallel.h"
#include "common/product.h"
#include "common/tiles.h"
#include "top_links_best.h"

namespace seegera {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Optional = std::optional<Tensor>;

// Rows of a block, at most, and blocks of a group. The rows of two groups stay in a cache while their blocks meet.
constexpr int64_t kBlockRows = 256;
constexpr int64_t kGroupBlocks = 4;
// Columns of the first piece of a tile that meets rows without a threshold.
constexpr int64_t kFirstColumns = 32;

// Which pairs count.
struct Question {
    int64_t nodes;
    const int64_t* rowptr;
    const int64_t* col;
    const int64_t* asked;  // the nodes of the rows; null: all of them
    int64_t rows;
    const int64_t* sides;  // null: all pairs
    int64_t k;
    bool per_node;

    int64_t node(int64_t row) const { return asked == nullptr ? row : asked[row]; }
    // Each pair of a symmetric question is computed once, for both of its nodes.
    bool symmetric() const { return asked == nullptr; }
};

// The best pairs of each row, or of all rows together.
template <typename T>
class Answer {
 public:
    Answer(const Question& question, const EmbeddingRows<T>& rows, int64_t blocks)
        : k_(question.k), rows_(rows), best_(new BestPairs<T>[question.per_node ? question.rows : 1]) {
        const int64_t n = question.nodes, count = question.per_node ? question.rows : 1;
        const int64_t pairs = std::max<int64_t>(0, question.per_node ? n - 1 : n * (n - 1) / 2);
        const int64_t room = BestPairs<T>::room_for(k_, pairs);
        candidates_.reset(new Candidate<T>[count * room]);
        for (int64_t i = 0; i < count; ++i) {
            best_[i].begin(candidates_.get() + i * room, k_, room);
        }
        locks_.reset(new std::mutex[question.per_node ? blocks : 1]);
    }

    BestPairs<T>& of(int64_t row) { return best_[row]; }
    std::mutex& lock(int64_t block) { return locks_[block]; }

    // Writes the best pairs of a row, or of the graph, in order: use(position, candidate), null behind the last one.
    template <typename Use>
    void finish(int64_t row, const Use& use) {
        const int64_t count = best_[row].finish(rows_);
        for (int64_t at = 0; at < k_; ++at) {
            use(at, at < count ? &best_[row][at] : nullptr);
        }
    }

 private:
    int64_t k_;
    const EmbeddingRows<T>& rows_;
    std::unique_ptr<BestPairs<T>[]> best_;
    std::unique_ptr<Candidate<T>[]> candidates_;
    std::unique_ptr<std::mutex[]> locks_;
};

// What all threads read: the question, the rows, and what is known of blocks.
template <typename T>
struct Plan {
    Question question;
    EmbeddingRows<T> embedding;
    const T* left;  // the rows that were asked for
    Blocks row_blocks;
    Blocks column_blocks;
    ScoreErrors<T> errors;
    std::vector<double> largest;      // norm of each block of columns
    std::vector<int64_t> first_rows;  // the first row of each node, or -1; empty where it does not count

    Plan(const Question& q, const EmbeddingRows<T>& rows, const T* asked_rows)
        : question(q),
          embedding(rows),
          left(asked_rows),
          row_blocks(Blocks::of_at_most(q.rows, kBlockRows)),
          column_blocks(Blocks::of_at_most(q.nodes, kBlockRows)),
          errors(rows, row_blocks.largest(), column_blocks.largest()) {
        for (int64_t b = 0; b < column_blocks.count(); ++b) {
            largest.push_back(errors.largest(column_blocks.begin(b), column_blocks.begin(b + 1)));
        }
        if (!q.per_node && !q.symmetric()) {
            first_rows.assign(q.nodes, -1);
            for (int64_t row = q.rows - 1; row >= 0; --row) {
                first_rows[q.asked[row]] = row;
            }
        }
    }

    // Whether two blocks have a pair of nodes on different sides.
    bool meet(int64_t row_block, int64_t column_block) const {
        if (question.sides == nullptr) {
            return true;
        }
        const int64_t side = question.sides[question.node(row_blocks.begin(row_block))];
        for (int64_t row = row_blocks.begin(row_block); row < row_blocks.begin(row_block + 1); ++row) {
            if (question.sides[question.node(row)] != side) {
                return true;
            }
        }
        return std::any_of(question.sides + column_blocks.begin(column_block),
                           question.sides + column_blocks.begin(column_block + 1),
                           [&](int64_t other) { return other != side; });
    }

    // Whether the pair counts where it is met in this row, apart from links and NaN. Over the whole graph each pair is
    // met once that counts.
    bool counts(int64_t row, int64_t i, int64_t j) const {
        if (i == j || (question.sides != nullptr && question.sides[i] == question.sides[j])) {
            return false;
        }
        if (question.per_node) {
            return true;
        }
        if (question.symmetric()) {
            return i < j;
        }
        return first_rows[i] == row && (i < j || first_rows[j] < 0);
    }
};

// A thread's memory for one tile, and the work on it.
template <typename T>
class ScoreTileWorker {
 public:
    ScoreTileWorker(const Plan<T>& plan, Answer<T>& answer)
        : plan_(plan),
          answer_(answer),
          stride_(plan.column_blocks.largest()),
          height_(plan.row_blocks.largest()),
          scores_(height_ * stride_),
          row_bounds_(height_),
          column_bounds_(stride_),
          cells_(new uint32_t[height_ * stride_]) {}

    void run(int64_t row_block, int64_t column_block) {
        const int64_t first_row = plan_.row_blocks.begin(row_block), first = plan_.column_blocks.begin(column_block);
        const int64_t rows = plan_.row_blocks.size(row_block), columns = plan_.column_blocks.size(column_block);
        const int64_t width = plan_.embedding.width;
        multiply<T>({scores_.get(), rows, columns, stride_, 1}, {plan_.left + first_row * width, rows, width, width, 1},
                    {plan_.embedding.row(first), width, columns, 1, width});
        // Before a row has k candidates nothing is ruled out, so its first columns are taken in small pieces.
        for (int64_t begin = 0, end; begin < columns; begin = end) {
            const bool early = std::isinf(answer_.of(row_of(first_row)).threshold());
            end = early ? std::min(columns, 3 * begin + kFirstColumns) : columns;
            collect(row_block, column_block, begin, end);
            if (early && end < columns) {
                const std::lock_guard<std::mutex> lock(lock_of(row_block));
                for (int64_t r = 0; r < (plan_.question.per_node ? rows : 1); ++r) {
                    answer_.of(row_of(first_row + r)).tighten();
                }
            }
        }
    }

 private:
    static int64_t row_in(uint32_t cell) { return cell >> kCellBits; }
    static int64_t column_in(uint32_t cell) { return cell & ((1u << kCellBits) - 1); }
    // Which best pairs a row adds to, and the lock of those of a block.
    int64_t row_of(int64_t row) const { return plan_.question.per_node ? row : 0; }
    std::mutex& lock_of(int64_t block) { return answer_.lock(plan_.question.per_node ? block : 0); }

    // Adds the pairs in some columns of the tile.
    void collect(int64_t row_block, int64_t column_block, int64_t begin, int64_t end) {
        const Question& q = plan_.question;
        const int64_t first_row = plan_.row_blocks.begin(row_block), rows = plan_.row_blocks.size(row_block);
        const int64_t first = plan_.column_blocks.begin(column_block) + begin;
        const bool both = q.per_node && q.symmetric() && row_block != column_block;
        for (int64_t r = 0; r < rows; ++r) {
            row_bounds_.get()[r] = bound(row_of(first_row + r), q.node(first_row + r), plan_.largest[column_block]);
        }
        std::fill(column_bounds_.get(), column_bounds_.get() + stride_, std::numeric_limits<T>::infinity());
        for (int64_t c = 0; both && c < end - begin; ++c) {
            column_bounds_.get()[c] = bound(first + c, first + c, plan_.largest[row_block]);
        }
        const ScoreTile<T> part{scores_.get() + begin, stride_, rows, end - begin};
        const int64_t above =
            SEEGERA_CHOOSE(cells_above<T>)(part, row_bounds_.get(), column_bounds_.get(), cells_.get());
        const int64_t count = without_links(above, first_row, first);
        if (count == 0) {
            return;
        }
        const auto score = [&](uint32_t cell) { return part.scores[row_in(cell) * stride_ + column_in(cell)]; };
        {
            const std::lock_guard<std::mutex> lock(lock_of(row_block));
            for (int64_t c = 0; c < count; ++c) {
                const int64_t row = first_row + row_in(cells_[c]);
                add(row_of(row), q.node(row), first + column_in(cells_[c]), score(cells_[c]));
            }
        }
        if (both) {
            const std::lock_guard<std::mutex> lock(lock_of(column_block));
            for (int64_t c = 0; c < count; ++c) {
                const int64_t column = first + column_in(cells_[c]);
                add(column, column, first_row + row_in(cells_[c]), score(cells_[c]));
            }
        }
    }

    // A score below this is not among the best of a row, if the other norm is at most `largest`.
    T bound(int64_t row, int64_t node, double largest) const {
        constexpr double slack = 4 * std::numeric_limits<T>::epsilon();
        const double threshold = answer_.of(row).threshold(), error = plan_.errors.of(plan_.errors.norm(node), largest);
        const T found = static_cast<T>(threshold - error * (1 + slack) - std::fabs(threshold) * slack);
        return std::isnan(found) ? -std::numeric_limits<T>::infinity() : found;
    }

    // Keeps the cells of pairs that count; returns their number. Cells are in order, and so are the links of a row.
    int64_t without_links(int64_t count, int64_t first_row, int64_t first) {
        const Question& q = plan_.question;
        int64_t kept = 0, row = -1, i = 0;
        const int64_t *link = nullptr, *end = nullptr;
        for (int64_t c = 0; c < count; ++c) {
            const int64_t j = first + column_in(cells_[c]);
            if (row_in(cells_[c]) != row) {
                row = row_in(cells_[c]);
                i = q.node(first_row + row);
                end = q.col + q.rowptr[i + 1];
                link = std::lower_bound(q.col + q.rowptr[i], end, j);
            }
            while (link != end && *link < j) {
                ++link;
            }
            const bool linked = link != end && *link == j;
            const bool defined = !std::isnan(plan_.errors.norm(i)) && !std::isnan(plan_.errors.norm(j));
            if (!linked && defined && plan_.counts(first_row + row, i, j)) {
                cells_[kept++] = cells_[c];
            }
        }
        return kept;
    }

    // Adds the pair (i, j), whose score is near `near`, to the best of a row.
    void add(int64_t row, int64_t i, int64_t j, double near) {
        const EmbeddingRows<T>& rows = plan_.embedding;
        const double error = plan_.errors.of(plan_.errors.norm(i), plan_.errors.norm(j));
        Candidate<T> candidate{static_cast<T>(near - error), static_cast<T>(near + error), i * rows.nodes + j};
        if (!plan_.question.per_node && j < i) {
            candidate.pair = j * rows.nodes + i;
        }
        if (!std::isfinite(near) || !std::isfinite(error)) {
            const double score = SEEGERA_CHOOSE(score_of<T>)(rows.row(i), rows.row(j), rows.width);
            if (std::isnan(score)) {
                return;
            }
            candidate.low = candidate.high = static_cast<T>(score);
        }
        answer_.of(row).add(rows, candidate);
    }

    const Plan<T>& plan_;
    Answer<T>& answer_;
    int64_t stride_;
    int64_t height_;
    Scratch<T> scores_;
    Scratch<T> row_bounds_;
    Scratch<T> column_bounds_;
    std::unique_ptr<uint32_t[]> cells_;
};

// The tiles, those of two groups of blocks one after the other. Of a symmetric question those on the diagonal come
// first, which give thresholds to all rows.
std::vector<std::pair<int32_t, int32_t> > order_tiles(int64_t rows, int64_t columns, bool symmetric) {
    std::vector<std::pair<int32_t, int32_t> > tiles;
    tiles.reserve(symmetric ? rows * (rows + 1) / 2 : rows * columns);
    for (int64_t block = 0; symmetric && block < rows; ++block) {
        tiles.emplace_back(block, block);
    }
    for (int64_t upper = 0; upper < rows; upper += kGroupBlocks) {
        for (int64_t left = symmetric ? upper : 0; left < columns; left += kGroupBlocks) {
            for (int64_t row = upper; row < std::min(rows, upper + kGroupBlocks); ++row) {
                for (int64_t column = symmetric ? std::max(row + 1, left) : left;
                     column < std::min(columns, left + kGroupBlocks); ++column) {
                    tiles.emplace_back(row, column);
                }
            }
        }
    }
    return tiles;
}

template <typename T>
void find(const Question& question, const EmbeddingRows<T>& embedding, T* scores, int64_t* links) {
    std::unique_ptr<T[]> gathered;
    if (question.asked != nullptr) {
        gathered.reset(new T[question.rows * embedding.width]);
        for (int64_t row = 0; row < question.rows; ++row) {
            const int64_t node = question.asked[row];
            STD_TORCH_CHECK(node >= 0 && node < question.nodes, "top_links: got node ", node, ", want 0 to ",
                            question.nodes - 1);
            std::copy_n(embedding.row(node), embedding.width, gathered.get() + row * embedding.width);
        }
    }
    const Plan<T> plan(question, embedding, gathered ? gathered.get() : embedding.z);
    Answer<T> answer(question, embedding, plan.row_blocks.count());
    const auto tiles = order_tiles(plan.row_blocks.count(), plan.column_blocks.count(), question.symmetric());
    const int64_t count = static_cast<int64_t>(tiles.size());
    on_every_thread([&](const auto& next) {
        ScoreTileWorker<T> worker(plan, answer);
        for (int64_t at = next(); at < count; at = next()) {
            if (plan.meet(tiles[at].first, tiles[at].second)) {
                worker.run(tiles[at].first, tiles[at].second);
            }
        }
    });
    const int64_t n = question.nodes, k = question.k;
    if (!question.per_node) {
        answer.finish(0, [&](int64_t at, const Candidate<T>* found) {
            scores[at] = found != nullptr ? found->low : -std::numeric_limits<T>::infinity();
            links[2 * at] = found != nullptr ? found->pair / n : -1;
            links[2 * at + 1] = found != nullptr ? found->pair % n : -1;
        });
        return;
    }
    for_each_range(question.rows, kBlockRows, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            answer.finish(row, [&](int64_t at, const Candidate<T>* found) {
                scores[row * k + at] = found != nullptr ? found->low : -std::numeric_limits<T>::infinity();
                links[row * k + at] = found != nullptr ? found->pair % n : -1;
            });
        }
    });
}

std::tuple<Tensor, Tensor> top_links(const Tensor& z, const Tensor& rowptr, const Tensor& col, const Optional& nodes,
                                     const Optional& sides, int64_t k, bool per_node) {
    const Tensor embedding = torch::stable::contiguous(z);
    Optional asked, numbers;
    if (nodes) {
        asked = torch::stable::contiguous(*nodes);
    }
    if (sides) {
        numbers = torch::stable::contiguous(*sides);
    }
    const Question question{z.size(0),
                            rowptr.const_data_ptr<int64_t>(),
                            col.const_data_ptr<int64_t>(),
                            asked ? asked->const_data_ptr<int64_t>() : nullptr,
                            asked ? asked->numel() : z.size(0),
                            numbers ? numbers->const_data_ptr<int64_t>() : nullptr,
                            k,
                            per_node};
    Tensor scores = per_node ? torch::stable::new_empty(z, {question.rows, k}) : torch::stable::new_empty(z, {k});
    Tensor links = per_node ? torch::stable::new_empty(col, {question.rows, k}) : torch::stable::new_empty(col, {k, 2});
    const auto run = [&](auto number) {
        using T = decltype(number);
        const EmbeddingRows<T> rows{embedding.const_data_ptr<T>(), z.size(0), z.size(1)};
        find<T>(question, rows, scores.mutable_data_ptr<T>(), links.mutable_data_ptr<int64_t>());
    };
    if (z.scalar_type() == ScalarType::Double) {
        run(double());
    } else {
        run(float());
    }
    return {scores, links};
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) { m.impl("top_links", TORCH_BOX(&seegera::top_links)); }

#endif
