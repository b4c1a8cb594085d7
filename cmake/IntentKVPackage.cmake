# The installed C++ library: one shared library, the public headers, a CMake package.
if(NOT TARGET ikv_engine)
  return()
endif()
include(CMakePackageConfigHelpers)

# All layers inside one library: a user links IntentKV::intentkv and needs nothing else of ours.
add_library(intentkv_library SHARED "${PROJECT_SOURCE_DIR}/src/engine/version.cc")
ikv_compile_options(intentkv_library)
target_compile_definitions(intentkv_library PRIVATE IKV_VERSION="${PROJECT_VERSION}")
add_library(IntentKV::intentkv ALIAS intentkv_library)
target_link_libraries(intentkv_library PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,ikv_engine>)
target_include_directories(intentkv_library
  PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
target_compile_features(intentkv_library PUBLIC cxx_std_20)
set_target_properties(intentkv_library PROPERTIES
  OUTPUT_NAME intentkv EXPORT_NAME intentkv LINKER_LANGUAGE CXX
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

install(TARGETS intentkv_library EXPORT IntentKVTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/intentkv"
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT IntentKVTargets NAMESPACE IntentKV:: DESTINATION
        ${CMAKE_INSTALL_LIBDIR}/cmake/IntentKV)
configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/IntentKVConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/IntentKVConfig.cmake"
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/IntentKV)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/IntentKVConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/IntentKVConfig.cmake"
              "${PROJECT_BINARY_DIR}/IntentKVConfigVersion.cmake"
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/IntentKV)
