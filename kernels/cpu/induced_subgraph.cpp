// The entries of a matrix in the rows and columns of some nodes, which get new numbers in their order.
//
// Two passes over the nodes. The first looks up each neighbour in a table of the nodes and keeps those that are in it.
// The second writes them where the running sum of their counts says, sorted by their new numbers. Floor: the columns
// of the rows are read once, in rows at addresses of their own, and a column and an entry number are written for each
// that stays. Of 19,000 among 300,000 nodes with 20 neighbours each, the
// reading takes two thirds of the time (AMD EPYC).
#include <cstdint>

#include "common/isa.h"

namespace seegera {

// The rows of some nodes, and a table of these nodes: see node_table.h.
struct Neighbours {
    const int64_t* rowptr;
    const int64_t* col;
    const int64_t* nodes;
    int64_t count;
    const uint64_t* words;
    const uint32_t* before;
};

// An entry that stays: its new column, or the rank of it, and its place in its row, in the halves of 64 bits.
constexpr int kPlaceBits = 32;
[[maybe_unused]] constexpr uint64_t kPlaceMask = (uint64_t{1} << kPlaceBits) - 1;

}  // namespace seegera

#ifndef SEEGERA_REGISTER

namespace seegera {
namespace SEEGERA_ISA {

// Asks for the row of a node some nodes ahead, because each row is at an address of its own.
inline void prefetch_row(const Neighbours& p, int64_t at) {
    constexpr int64_t ahead = 8, line = 64 / sizeof(int64_t), most = 4;
    if (at + ahead < p.count) {
        const int64_t begin = p.rowptr[p.nodes[at + ahead]], end = p.rowptr[p.nodes[at + ahead] + 1];
        for (int64_t k = begin; k < end && k < begin + most * line; k += line) {
            __builtin_prefetch(p.col + k);
        }
    }
}

// Writes the entries of nodes [begin, end) that stay, with their ranks, one node after the other, and the count of each
// node behind its number. There is a place more than there are entries, because one is written before it counts.
void find_neighbours(const Neighbours& p, int64_t begin, int64_t end, uint64_t* found, int64_t* counts) {
    for (int64_t at = begin; at < end; ++at) {
        prefetch_row(p, at);
        const int64_t* row = p.col + p.rowptr[p.nodes[at]];
        const int64_t size = p.rowptr[p.nodes[at] + 1] - p.rowptr[p.nodes[at]];
        const uint64_t* first = found;
        for (int64_t place = 0; place < size; ++place) {
            const uint64_t word = p.words[row[place] >> 6], bit = uint64_t{1} << (row[place] & 63);
            const uint64_t rank = p.before[row[place] >> 6] + __builtin_popcountll(word & (bit - 1));
            *found = rank << kPlaceBits | static_cast<uint64_t>(place);
            found += (word & bit) != 0;
        }
        counts[at + 1] = found - first;
    }
}

}  // namespace SEEGERA_ISA
}  // namespace seegera

#else

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <memory>
#include <tuple>
#include <vector>

#include "common/chosen_rows.h"
#include "common/node_table.h"
#include "common/parallel.h"

namespace seegera {

SEEGERA_FOR_EACH_ISA(void find_neighbours(const Neighbours&, int64_t, int64_t, uint64_t*, int64_t*);)

namespace {

using torch::stable::Tensor;

// Entries of a task.
constexpr int64_t kTaskEntries = int64_t{1} << 15;

// The entries that stay, those of each task in memory of its own.
class Staying {
 public:
    Staying(const ChosenRows& chosen, const int64_t* columns, const NodeTable& table, int64_t* new_rowptr)
        : chosen_(chosen),
          table_(table),
          ends_(new_rowptr),
          starts_(chosen.tasks(kTaskEntries)),
          found_(starts_.size() - 1) {
        for_each_task(tasks(), [&](int64_t task) { find(task, columns); });
        ends_[0] = 0;
        for (int64_t at = 0; at < chosen.count; ++at) {
            ends_[at + 1] += ends_[at];
        }
    }

    int64_t count() const { return ends_[chosen_.count]; }

    void write(int64_t* new_col, int64_t* entry) {
        for_each_task(tasks(), [&](int64_t task) {
            uint64_t* from = found_[task].get();
            for (int64_t at = starts_[task]; at < starts_[task + 1]; ++at) {
                const int64_t begin = chosen_.begin(at), first = ends_[at], count = ends_[at + 1] - first;
                if (!table_.ascending()) {
                    renumber(from, count);
                }
                for (int64_t k = 0; k < count; ++k) {
                    new_col[first + k] = static_cast<int64_t>(from[k] >> kPlaceBits);
                    entry[first + k] = begin + static_cast<int64_t>(from[k] & kPlaceMask);
                }
                from += count;
            }
        });
    }

 private:
    int64_t tasks() const { return static_cast<int64_t>(found_.size()); }

    void find(int64_t task, const int64_t* columns) {
        int64_t most = 1;
        for (int64_t at = starts_[task]; at < starts_[task + 1]; ++at) {
            most += chosen_.size(at);
        }
        found_[task].reset(new uint64_t[most]);
        const Neighbours rows = {chosen_.rowptr, columns, chosen_.rows, chosen_.count, table_.words(), table_.before()};
        SEEGERA_CHOOSE(find_neighbours)(rows, starts_[task], starts_[task + 1], found_[task].get(), ends_);
    }

    // From ranks to numbers, in ascending order.
    void renumber(uint64_t* found, int64_t count) const {
        for (int64_t k = 0; k < count; ++k) {
            const uint64_t number = table_.number(static_cast<uint32_t>(found[k] >> kPlaceBits));
            found[k] = number << kPlaceBits | (found[k] & kPlaceMask);
        }
        std::sort(found, found + count);
    }

    const ChosenRows& chosen_;
    const NodeTable& table_;
    int64_t* ends_;
    std::vector<int64_t> starts_;
    std::vector<std::unique_ptr<uint64_t[]> > found_;
};

std::tuple<Tensor, Tensor, Tensor> induced_subgraph(const Tensor& rowptr, const Tensor& col, const Tensor& nodes) {
    const int64_t total = rowptr.numel() - 1;
    const ChosenRows chosen = {rowptr.const_data_ptr<int64_t>(), nodes.const_data_ptr<int64_t>(), nodes.numel()};
    STD_TORCH_CHECK(total < (int64_t{1} << 31), "induced_subgraph: got ", total, " nodes, want fewer than 2^31");
    check_rows("induced_subgraph", chosen.rows, chosen.count, total);
    const NodeTable table(chosen.rows, chosen.count, total);
    STD_TORCH_CHECK(table.twice() < 0, "induced_subgraph: got node ", table.twice(), " twice, want different nodes");

    Tensor new_rowptr = torch::stable::new_empty(rowptr, {chosen.count + 1});
    Staying staying(chosen, col.const_data_ptr<int64_t>(), table, new_rowptr.mutable_data_ptr<int64_t>());
    Tensor new_col = torch::stable::new_empty(col, {staying.count()});
    Tensor entry = torch::stable::new_empty(col, {staying.count()});
    staying.write(new_col.mutable_data_ptr<int64_t>(), entry.mutable_data_ptr<int64_t>());
    return {new_rowptr, new_col, entry};
}

}  // namespace
}  // namespace seegera

STABLE_TORCH_LIBRARY_IMPL(seegera_fast, CPU, m) { m.impl("induced_subgraph", TORCH_BOX(&seegera::induced_subgraph)); }

#endif
