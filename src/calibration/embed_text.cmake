# cmake -D "INPUTS=a.txt;b.txt" -D OUTPUT=x.cc -P embed_text.cmake: the files, one after the other,
# as the bytes that calibration_text() returns. Numbers, since compilers limit the length of a
# string literal.
set(hex "")
foreach(input ${INPUTS})
  file(READ "${input}" part HEX)
  string(APPEND hex "${part}")
endforeach()
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE "${OUTPUT}.new"
     "// Made by embed_text.cmake.\n#include \"calibration/calibrate.h\"\n\nnamespace ikv {\n"
     "namespace {\nconstexpr unsigned char kText[] = {\n${bytes}};\n}  // namespace\n\n"
     "std::string_view calibration_text() {\n"
     "  return {reinterpret_cast<const char*>(kText), sizeof(kText)};\n}\n\n}  // namespace ikv\n")
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
