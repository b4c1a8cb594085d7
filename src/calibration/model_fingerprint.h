// A model file's fingerprint: the name under which what was derived from it is cached.
#pragma once

#include <string>

#include "gguf/reader.h"

namespace ikv {

/// 32 hexadecimal digits that depend on all metadata, on every tensor's name, type and shape, and
/// on its bytes: all of a tensor up to 256 KiB, 64 stretches of 4 KiB, ends included, of a larger
/// one. So any two trainings of a model differ, and the same file is equal wherever it lies; a
/// change of single bytes between the stretches of a large tensor is not seen. XXH3 of 128 bits.
/// Cost: reads at most 256 KiB a tensor, some 10 ms for a model of 100 MB.
std::string model_fingerprint(const GgufFile& file);

}  // namespace ikv
