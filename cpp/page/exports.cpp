// The functions that JavaScript calls, and what takes the place of C++ exceptions there.
//
// The engine throws where a question is malformed, and nothing of it is wanted afterwards. Here a
// throw hands its sentence to JavaScript, whose own exception leaves every frame of the engine at
// once; the page then makes a new instance of the module.
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <typeinfo>

#include "page/answer.hpp"

namespace {

/// Kept until the next question, so that JavaScript can read it.
std::string question, answered;

}  // namespace

extern "C" {

[[clang::import_module("page"), clang::import_name("failed"), noreturn]] void page_failed(
    const char* text, std::size_t size);

/// Room for a question of that many bytes.
[[clang::export_name("page_question")]] char* page_question(std::size_t size) {
  question.resize(size);
  return question.data();
}

/// Answers it; the size of the answer.
[[clang::export_name("page_answer")]] std::size_t page_answer() {
  answered = scalemodel::page::answer(question);
  return answered.size();
}

[[clang::export_name("page_text")]] const char* page_text() { return answered.data(); }

// ---------------------------------------------------------- the interface of the Itanium C++ ABI
void* __cxa_allocate_exception(std::size_t size) noexcept { return std::malloc(size); }
void __cxa_free_exception(void* thrown) noexcept { std::free(thrown); }

/// Everything the engine throws as a refusal is a std::exception that begins where the object does.
[[noreturn]] void __cxa_throw(void* thrown, std::type_info* type, void (*)(void*)) {
  const bool refusal =
      std::string_view(type->name()).find("MalformedQuestion") != std::string_view::npos ||
      std::string_view(type->name()).starts_with("St");
  const char* text = refusal ? static_cast<std::exception*>(thrown)->what() : type->name();
  page_failed(text, std::strlen(text));
}

}  // extern "C"
