// Which blocks are dropped: to make room, because a policy does not want them, or because there are more of them than
// it allows.
#pragma once
#include "blocks.h"

namespace wengert {

// Returns how many bytes were dropped, of the host or of a device.
size_t make_room_in(const Device* device, size_t bytes);
// The block is dropped as soon as the user no longer sees it.
void do_without(Block* b);
// Drops unwanted blocks that the user no longer sees, looking at no more than `most` of them.
void drop_unwanted(size_t most = SIZE_MAX);
void limit(Block* b);
void drop_limited();  // of the limited blocks, a logarithmic number stays

// Bytes that cannot be dropped now: live bytes minus the blocks held only by recorded instructions. Of the host, or of
// a device.
size_t fixed_bytes(const Device* device = nullptr);

}  // namespace wengert
