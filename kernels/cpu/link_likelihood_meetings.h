// The order in which blocks of rows meet in a sum over all pairs, for the registration half of link_likelihood.cpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace seegera {

// Rows of a block, at most: a tile of 256 kB in float32. At d = 512, 192 rows took 1.06 times as long and 128 rows 1.1
// times; at d = 64 all sizes from 160 to 384 were alike.
constexpr int64_t kBlockRows = 256;
// Blocks of a group, at most: at n = 13,752, 4 took 1 to 3 % less time than 1, and no more than 8.
constexpr int64_t kGroupBlocks = 4;

// Row blocks in groups of equally many.
struct BlockGroups {
    int64_t count;
    int64_t size;
};

inline BlockGroups group_blocks(int64_t rows) {
    const int64_t least = (rows + kBlockRows - 1) / kBlockRows;
    const int64_t count = (least + kGroupBlocks - 1) / kGroupBlocks;
    return {count, (least + count - 1) / count};
}

// Two blocks, lower <= upper, that meet in a sample. It is task number `round` of both.
struct Meeting {
    int64_t sample;
    int64_t lower;
    int64_t upper;
    int64_t round;
};

// All meetings, each behind those of its blocks in earlier rounds. Groups meet in a round-robin tournament, i and k in
// the round i + k modulo their number, and so do the blocks of the two groups: each has one task in each round. While
// two groups meet, their rows of z and of the gradient stay in a cache. The number of threads
// decides how many pairs of groups and samples run side by side, but not the order of a block's tasks.
inline std::vector<Meeting> schedule_meetings(const BlockGroups& blocks, int64_t samples, int64_t threads) {
    const int64_t groups = blocks.count, size = blocks.size, count = groups * size;
    // Twice as many independent tasks as threads, so that what a task waits for is usually done. A group that meets
    // itself has about half as many tasks as it has blocks.
    const auto shares = [&](int64_t tasks) { return (2 * threads + tasks - 1) / tasks; };
    const int64_t pairs_at_once = shares((size + 1) / 2);
    const int64_t samples_at_once = std::min(samples, shares((count + 1) / 2));
    std::vector<Meeting> meetings;
    meetings.reserve(samples * count * (count + 1) / 2);
    const auto meet = [&](int64_t sample, int64_t lower, int64_t upper, int64_t group_round, int64_t step) {
        for (int64_t i = 0; i < size; ++i) {
            const int64_t k = (step - i + size) % size;
            if (lower < upper || i <= k) {
                meetings.push_back({sample, lower * size + i, upper * size + k, group_round * size + step});
            }
        }
    };
    for (int64_t sample = 0; sample < samples; sample += samples_at_once) {
        const int64_t sample_end = std::min(samples, sample + samples_at_once);
        for (int64_t group_round = 0; group_round < groups; ++group_round) {
            std::vector<std::pair<int64_t, int64_t> > pairs;
            for (int64_t lower = 0; lower < groups; ++lower) {
                const int64_t upper = (group_round - lower + groups) % groups;
                if (lower <= upper) {
                    pairs.emplace_back(lower, upper);
                }
            }
            for (int64_t pair = 0; pair < static_cast<int64_t>(pairs.size()); pair += pairs_at_once) {
                const int64_t pair_end = std::min<int64_t>(pairs.size(), pair + pairs_at_once);
                for (int64_t step = 0; step < size; ++step) {
                    for (int64_t s = sample; s < sample_end; ++s) {
                        for (int64_t p = pair; p < pair_end; ++p) {
                            meet(s, pairs[p].first, pairs[p].second, group_round, step);
                        }
                    }
                }
            }
        }
    }
    return meetings;
}

}  // namespace seegera
