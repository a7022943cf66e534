// Which of some different nodes a number is, for the registration half of a kernel file.
#pragma once

#include <cstdint>
#include <memory>

namespace seegera {

// A bit for each node of the graph, and the number of bits before each word of them. That is 12 bytes for 64 nodes, so
// that of a million nodes stays in a cache, and a look-up, for which kernels read both, has no branch. A hash table of
// the chosen nodes takes half as long again (AMD EPYC). A number for each node of the graph takes as long as the bits,
// and 20 times the memory.
class NodeTable {
 public:
    // Node nodes[k], in [0, total), has the number k.
    NodeTable(const int64_t* nodes, int64_t count, int64_t total)
        : words_(new uint64_t[total / 64 + 1]()), before_(new uint32_t[total / 64 + 1]) {
        for (int64_t k = 0; k < count; ++k) {
            uint64_t& word = words_[nodes[k] >> 6];
            twice_ = (word >> (nodes[k] & 63) & 1) != 0 ? nodes[k] : twice_;
            word |= uint64_t{1} << (nodes[k] & 63);
            ascending_ = ascending_ && (k == 0 || nodes[k - 1] < nodes[k]);
        }
        uint32_t sum = 0;
        for (int64_t at = 0; at <= total / 64; ++at) {
            before_[at] = sum;
            sum += static_cast<uint32_t>(__builtin_popcountll(words_[at]));
        }
        if (!ascending_) {
            numbers_.reset(new uint32_t[count]);
            for (int64_t k = 0; k < count; ++k) {
                numbers_[rank(nodes[k])] = static_cast<uint32_t>(k);
            }
        }
    }

    // A node that is there twice, or -1.
    int64_t twice() const { return twice_; }
    bool ascending() const { return ascending_; }

    const uint64_t* words() const { return words_.get(); }
    const uint32_t* before() const { return before_.get(); }
    // How many of the nodes are smaller.
    uint32_t rank(int64_t node) const {
        const uint64_t below = words_[node >> 6] & ((uint64_t{1} << (node & 63)) - 1);
        return before_[node >> 6] + static_cast<uint32_t>(__builtin_popcountll(below));
    }
    // The number of the node with a rank.
    uint32_t number(uint32_t rank) const { return ascending_ ? rank : numbers_[rank]; }

 private:
    std::unique_ptr<uint64_t[]> words_;
    std::unique_ptr<uint32_t[]> before_;
    std::unique_ptr<uint32_t[]> numbers_;
    int64_t twice_ = -1;
    bool ascending_ = true;
};

}  // namespace seegera
