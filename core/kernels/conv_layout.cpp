#include "conv_layout.h"

namespace wengert {

namespace {

constexpr int64_t kMostColumns = 512;  // of a block: longer rows are cut
constexpr int64_t kMostDepth = 768;    // channels × taps: what a panel of weights reads stays in the nearest cache

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Equal parts of at most `limit`.
int64_t part(int64_t extent, int64_t limit) {
  return extent == 0 ? 1 : ceil_div(extent, ceil_div(extent, std::max<int64_t>(1, limit)));
}

}  // namespace

void ConvAxis::lay_out() {
  slot.clear();
  shift.clear();
  first.clear();
  reach = 0;
  if (offset.empty()) return;
  const int64_t low = *std::min_element(offset.begin(), offset.end());
  for (int64_t o : offset) {
    const int64_t phase = low + (o - low) % from_step;
    const auto known = std::find(first.begin(), first.end(), phase);
    slot.push_back(known - first.begin());
    if (known == first.end()) first.push_back(phase);
    shift.push_back((o - low) / from_step);
    reach = std::max(reach, shift.back());
  }
}

ConvBlocks cut_blocks(ConvAxis (&axis)[kMaxSpatial], int64_t channels, int64_t budget) {
  // Axes that are only copied are one long row with those behind them.
  if (axis[2].plain() && axis[1].plain()) {
    axis[2].count = axis[2].from_size = axis[2].to_size = axis[1].count * axis[2].count;
    axis[1].count = axis[1].from_size = axis[1].to_size = 1;
    if (axis[0].plain()) {
      axis[2].count = axis[2].from_size = axis[2].to_size = axis[0].count * axis[2].count;
      axis[0].count = axis[0].from_size = axis[0].to_size = 1;
    }
  }
  ConvBlocks b;
  for (int i = 0; i < kMaxSpatial; ++i) {
    b.axis[i] = axis[i];
    b.axis[i].lay_out();
  }
  const ConvAxis &z = b.axis[0], &y = b.axis[1], &x = b.axis[2];
  b.columns = part(x.count, kMostColumns);
  b.row = x.slots() * (b.columns + x.reach);
  // All channels with as many rows as there is room for; fewer channels if not even one row fits.
  const int64_t lines = z.taps() * y.slots() * b.row;  // of one row, without its reach
  const int64_t fitting = budget / std::max<int64_t>(1, lines * (1 + y.reach));
  b.channels = part(channels, std::min(fitting, kMostDepth / std::max<int64_t>(1, b.taps())));
  b.rows = part(y.count, budget / std::max<int64_t>(1, b.channels * lines) - y.reach);
  b.channel = z.taps() * y.slots() * (b.rows + y.reach) * b.row;
  return b;
}

std::vector<int64_t> ConvBlocks::offsets() const {
  const ConvAxis &z = axis[0], &y = axis[1], &x = axis[2];
  const int64_t row_slot = (rows + y.reach) * row, plane = y.slots() * row_slot;
  std::vector<int64_t> table;
  table.reserve(static_cast<size_t>(channels * taps()));
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t t0 = 0; t0 < z.taps(); ++t0) {
      for (int64_t t1 = 0; t1 < y.taps(); ++t1) {
        for (int64_t t2 = 0; t2 < x.taps(); ++t2) {
          table.push_back(c * channel + t0 * plane + y.slot[t1] * row_slot + y.shift[t1] * row +
                          x.slot[t2] * (columns + x.reach) + x.shift[t2]);
        }
      }
    }
  }
  return table;
}

}  // namespace wengert
