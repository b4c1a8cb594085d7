// Key codebooks on disk: one file a model, found by the model's fingerprint.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kv/key_codes.h"

namespace ikv {

/// Where the codebooks of a model are cached:
/// $XDG_CACHE_HOME/intentkv/<fingerprint>.<kind>.codebook, else under $HOME/.cache; kNotFound when
/// neither variable is set. `fingerprint` is letters, digits,
/// '-' and '_' (kInvalidArgument otherwise).
Result<std::filesystem::path> default_codebook_path(std::string_view fingerprint, KeyCodeKind kind);

/// Writes a complete file or none: a temporary file beside it, synchronised, then renamed. Creates
/// the folder. kIo with path and cause.
Status save_codebooks(const std::filesystem::path& path, const KeyCodebooks& books,
                      std::string_view fingerprint);

/// Reads codebooks of exactly this model, kind and shape. kNotFound: no such file. kInvalidFile:
/// cut, corrupted, of another version, model or shape; the caller fits again and overwrites.
Result<KeyCodebooks> load_codebooks(const std::filesystem::path& path, KeyCodeKind kind,
                                    const std::vector<KvLayerShape>& layers,
                                    std::string_view fingerprint);

}  // namespace ikv
