// The library's version at run time.
#pragma once

namespace ikv {

/// "major.minor.patch" of the library that is linked.
const char* version();

}  // namespace ikv
