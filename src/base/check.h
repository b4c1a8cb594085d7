// IKV_CHECK: aborts on our own bugs only; whatever comes from outside is reported by Result.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace ikv::internal {

[[noreturn]] inline void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: internal check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace ikv::internal

#define IKV_CHECK(condition) \
  ((condition) ? (void)0 : ::ikv::internal::check_failed(#condition, __FILE__, __LINE__))
