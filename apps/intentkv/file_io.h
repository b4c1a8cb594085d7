// Whole files in and out, with errors that name the file and the system's reason.
#pragma once

#include <string>

#include "base/result.h"

namespace ikv {

/// All bytes of a file. Errors: kIo (missing, a folder, no permission, read failure).
Result<std::string> read_file(const std::string& path);

/// All bytes of standard input. Errors: kIo.
Result<std::string> read_standard_input();

/// Replaces a file's content. Errors: kIo.
Status write_file(const std::string& path, const std::string& text);

}  // namespace ikv
