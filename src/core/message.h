// The chat messages; public, since clients of the C++ API make them.
#pragma once

#include "intentkv/message.h"  // IWYU pragma: export
