#include "intentkv/version.h"

namespace ikv {

const char* version() {
  return IKV_VERSION;
}

}  // namespace ikv
