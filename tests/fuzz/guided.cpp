// A coverage-guided fuzzer for compilers without libFuzzer, with a few of its options:
//   fuzzer [-runs=N] [-max_total_time=SECONDS] [-seed=N] [-max_len=N] [CORPUS]
// Inputs that reach new code are kept, and written to the folder CORPUS; those that run soon are
// mutated most, as in AFL: a corpus collects slow ones, and many short runs find more. GCC reports
// coverage with -fsanitize-coverage=trace-pc; without it inputs are mutated all the same. What ends
// the process, takes ten seconds of processor time or makes a sanitizer speak is left in the file
// crash-input.
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

constexpr std::size_t kPlaces = 1 << 16;
constexpr long kPulse = 1 << 18;           // executions between two signs of life
std::array<std::uint8_t, kPlaces> hits{};  // of the input that runs
// Where no sanitizer looks, none of the functions of an array is inlined.
std::uint8_t* const first_hit = hits.data();
std::array<std::uint8_t, kPlaces> reached{};  // bits of counts, of all inputs so far
const Input* running = nullptr;

struct Options {
  long runs = -1, seconds = -1, seed = 1;
  std::size_t longest = 1024;
  std::string corpus;
};

void keep_running_input() {
  if (running == nullptr) return;
  std::ofstream("crash-input", std::ios::binary)
      .write(reinterpret_cast<const char*>(running->data()),
             static_cast<std::streamsize>(running->size()));
}

extern "C" void give_up(int) {
  keep_running_input();
  std::_Exit(EXIT_FAILURE);
}

std::uint64_t next_random(std::uint64_t& state) {  // splitmix64
  std::uint64_t z = (state += 0x9e3779b97f4a7c15ULL);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

/// An input of the corpus and how long it ran.
struct Kept {
  Input input;
  double seconds;
};

double processor_seconds() {
  return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC);
}

long accepted = 0;  // executions of inputs that the target did not reject

/// Runs an input; whether it was accepted and reached a place, or a place so often, for the first
/// time.
bool reaches_more(const Input& input) {
  hits.fill(0);
  running = &input;
  // Processor time: a busy machine is no hang.
  const itimerval limit{{0, 0}, {10, 0}};
  setitimer(ITIMER_PROF, &limit, nullptr);
  const bool rejected = LLVMFuzzerTestOneInput(input.data(), input.size()) == -1;
  running = nullptr;
  if (rejected) return false;
  ++accepted;
  bool more = false;
  for (std::size_t word = 0; word < kPlaces; word += sizeof(std::uint64_t)) {
    std::uint64_t any = 0;  // most places are never reached: eight at a time
    std::memcpy(&any, &hits[word], sizeof any);
    if (any == 0) continue;
    for (std::size_t i = word; i < word + sizeof any; ++i) {
      if (hits[i] == 0) continue;
      const auto count = static_cast<std::uint8_t>(1U << (std::bit_width(hits[i]) - 1));
      more = more || (count & ~reached[i]) != 0;
      reached[i] = static_cast<std::uint8_t>(reached[i] | count);
    }
  }
  return more;
}

Input mutated(const std::vector<Kept>& corpus, std::size_t longest, std::uint64_t& random) {
  const auto below = [&random](std::size_t count) {
    return static_cast<std::size_t>(next_random(random) % count);
  };
  constexpr int kRivals = 3;  // the quickest of so many is mutated
  const Kept* quickest = &corpus[below(corpus.size())];
  for (int rival = 1; rival < kRivals; ++rival) {
    const Kept& other = corpus[below(corpus.size())];
    if (other.seconds < quickest->seconds) quickest = &other;
  }
  Input input = quickest->input;
  for (std::size_t changes = 1 + below(8); changes > 0; --changes) {
    const std::size_t at = below(input.size() + 1);
    const auto here = input.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(5)) {
      case 0:
        if (at < input.size()) *here = static_cast<std::uint8_t>(next_random(random));
        break;
      case 1:
        if (at < input.size()) *here = static_cast<std::uint8_t>(*here ^ (1U << below(8)));
        break;
      case 2:
        input.insert(here, static_cast<std::uint8_t>(next_random(random)));
        break;
      case 3:
        if (at < input.size()) input.erase(here);
        break;
      default: {  // the rest of another input
        const Input& other = corpus[below(corpus.size())].input;
        input.resize(at);
        const std::size_t from = std::min(at, other.size());
        input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      }
    }
  }
  if (input.size() > longest) input.resize(longest);
  return input;
}

bool starts(std::string_view text, std::string_view with, long& value) {
  if (!text.starts_with(with)) return false;
  value = std::strtol(text.data() + with.size(), nullptr, 10);
  return true;
}

Options read(int count, char** arguments) {
  Options options;
  long longest = static_cast<long>(options.longest);
  for (int i = 1; i < count; ++i) {
    const std::string_view text = arguments[i];
    if (!starts(text, "-runs=", options.runs) && !starts(text, "-seed=", options.seed) &&
        !starts(text, "-max_total_time=", options.seconds) && !starts(text, "-max_len=", longest)) {
      options.corpus = text;
    }
  }
  options.longest = static_cast<std::size_t>(std::max(longest, 1L));
  return options;
}

}  // namespace

// GCC calls this at every branch where -fsanitize-coverage=trace-pc is given.
extern "C" __attribute__((no_sanitize("address", "undefined"))) void __sanitizer_cov_trace_pc() {
  const auto place = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  std::uint8_t& count = first_hit[(place ^ (place >> 16)) % kPlaces];
  if (count < 255) ++count;
}
extern "C" void __asan_on_error() { keep_running_input(); }
extern "C" const char* __ubsan_default_options() { return "abort_on_error=1"; }

int main(int count, char** arguments) {
  namespace files = std::filesystem;
  const Options options = read(count, arguments);
  std::signal(SIGPROF, give_up);
  std::signal(SIGABRT, give_up);
  std::signal(SIGFPE, give_up);
  std::vector<Input> recorded{Input(64)};
  if (!options.corpus.empty() && files::is_directory(options.corpus)) {
    std::vector<files::path> paths;
    for (const auto& entry : files::directory_iterator(options.corpus)) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    for (const files::path& path : paths) {
      std::ifstream file(path, std::ios::binary);
      recorded.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  }
  std::vector<Kept> corpus;
  for (const Input& input : recorded) {
    const double start = processor_seconds();
    reaches_more(input);
    corpus.push_back({input, processor_seconds() - start});
  }
  std::printf("%zu inputs of the corpus ran\n", corpus.size());
  std::fflush(stdout);

  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&begin] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  auto random = static_cast<std::uint64_t>(options.seed);
  long runs = 0;
  while ((options.runs < 0 || runs < options.runs) &&
         (options.seconds < 0 || elapsed() < static_cast<double>(options.seconds))) {
    Input input = mutated(corpus, options.longest, random);
    if (++runs % kPulse == 0) {
      std::printf("%ld executions, %ld accepted, in %.0f s, %zu inputs kept\n", runs, accepted,
                  elapsed(), corpus.size());
      std::fflush(stdout);
    }
    const double start = processor_seconds();
    if (!reaches_more(input)) continue;
    corpus.push_back({input, processor_seconds() - start});
    if (options.corpus.empty()) continue;
    std::uint64_t name = 14695981039346656037ULL;  // FNV-1a
    for (const std::uint8_t byte : input) name = (name ^ byte) * 1099511628211ULL;
    std::array<char, 17> digits{};
    std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(name));
    std::ofstream(files::path(options.corpus) / digits.data(), std::ios::binary)
        .write(reinterpret_cast<const char*>(input.data()),
               static_cast<std::streamsize>(input.size()));
  }
  const auto places = std::count_if(reached.begin(), reached.end(), [](auto bits) { return bits; });
  std::printf("%ld executions, %ld accepted, in %.0f s, %zu inputs kept, %td places reached\n",
              runs, accepted, elapsed(), corpus.size(), places);
  return EXIT_SUCCESS;
}
