# Helpers that every folder uses, so that flags, include roots and test registration live once.

# Warnings are errors only where the developer asks (dev preset): a newer compiler's new warning
# must not break a user's build.
option(IKV_WERROR "Treat warnings as errors" OFF)

function(ikv_compile_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -fno-math-errno
                                           -ffp-contract=off)
  # GCC 12 and 13 see overlapping copies where a literal is assigned to a std::string (bug 105651).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  if(IKV_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(IKV_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${IKV_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${IKV_SANITIZE})
  endif()
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                                              $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
endfunction()

# ikv_library(NAME gguf SRCS reader.cc DEPS base) -> static library ikv_gguf; DEPS are folder names
# of this project or full target names of others (a name with "::").
function(ikv_library)
  cmake_parse_arguments(A "" "NAME" "SRCS;DEPS" ${ARGN})
  add_library(ikv_${A_NAME} STATIC ${A_SRCS})
  ikv_compile_options(ikv_${A_NAME})
  ikv_link(ikv_${A_NAME} PUBLIC ${A_DEPS})
endfunction()

function(ikv_link target visibility)
  foreach(dep ${ARGN})
    if(dep MATCHES "::" OR dep MATCHES "^[/-]" OR dep MATCHES "^\\$")
      target_link_libraries(${target} ${visibility} ${dep})
    else()
      target_link_libraries(${target} ${visibility} ikv_${dep})
    endif()
  endforeach()
endfunction()

# ikv_test(NAME reader_test SRCS reader_test.cc DEPS gguf LABELS slow): one GoogleTest executable,
# one ctest entry. Labels: `slow` (needs the real model or minutes), `perf`, `lint`.
function(ikv_test)
  cmake_parse_arguments(A "" "NAME;TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT IKV_BUILD_TESTS)
    return()
  endif()
  add_executable(${A_NAME} ${A_SRCS})
  ikv_compile_options(${A_NAME})
  ikv_link(${A_NAME} PRIVATE ${A_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${A_NAME} PRIVATE IKV_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${A_NAME} COMMAND ${A_NAME})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 600)
  endif()
  set_tests_properties(${A_NAME} PROPERTIES TIMEOUT ${A_TIMEOUT})
  if(A_LABELS)
    set_tests_properties(${A_NAME} PROPERTIES LABELS "${A_LABELS}")
  endif()
endfunction()
