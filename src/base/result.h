// Result<T> (public, see intentkv/result.h) and the macros that pass errors on.
#pragma once

#include "base/check.h"
#include "intentkv/result.h"  // IWYU pragma: export

#define IKV_CONCAT_INNER_(a, b) a##b
#define IKV_CONCAT_(a, b) IKV_CONCAT_INNER_(a, b)

/// Returns the error of `expr` (a Result or Status) from the enclosing function, if it is one.
#define IKV_RETURN_IF_ERROR(expr)                      \
  do {                                                 \
    auto ikv_status_ = (expr);                         \
    if (!ikv_status_.ok()) return ikv_status_.error(); \
  } while (0)

/// `IKV_ASSIGN_OR_RETURN(auto x, f())`: x = f()'s value, or return its error.
#define IKV_ASSIGN_OR_RETURN(lhs, expr) \
  IKV_ASSIGN_OR_RETURN_IMPL_(IKV_CONCAT_(ikv_result_, __LINE__), lhs, expr)
#define IKV_ASSIGN_OR_RETURN_IMPL_(result, lhs, expr) \
  auto result = (expr);                               \
  if (!result.ok()) return result.error();            \
  lhs = std::move(result).value()
