// Why a derivative does not exist: of what the `reason` of undefined_cotangent stands for.
#pragma once
#include <cstdint>

namespace wengert {

const char* why_undefined(int64_t reason);

}  // namespace wengert
