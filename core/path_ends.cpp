#include "path_ends.h"

#include <vector>

namespace wengert {

namespace {

constexpr uint32_t kKept = 1 << 14;
constexpr uint32_t kNumbers = 0x0FFF0000;  // numbers wrap around here; a multiple of kKept

std::vector<PathEnd> kept;
uint32_t count = 0;  // ends remembered so far, modulo kNumbers

}  // namespace

void mark_end(Value* v, const PathEnd& end) {
  if (kept.empty()) kept.resize(kKept);
  PathEnd& place = kept[count % kKept];
  if (place.line.code) drop_source_line(place.line);
  place = end;
  v->made = Value::kFirstSpecial + count;
  count = (count + 1) % kNumbers;
}

const PathEnd* find_end(uint32_t number) {
  if (number < Value::kFirstSpecial || number - Value::kFirstSpecial >= kNumbers || kept.empty()) return nullptr;
  const uint32_t age = (count + kNumbers - (number - Value::kFirstSpecial)) % kNumbers;  // 1: the latest
  return age >= 1 && age <= kKept && kept[(number - Value::kFirstSpecial) % kKept].op
             ? &kept[(number - Value::kFirstSpecial) % kKept]
             : nullptr;
}

}  // namespace wengert
