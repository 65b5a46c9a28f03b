// Lengths of answers: quantiles against tables, means and cuts that hold for every input.
#include "scalemodel/post_training/answers.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "scalemodel/post_training/packing.hpp"
#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST_CASE("published: quantiles of the normal distribution") {
  // Wichura, Applied Statistics 37 (1988) 477, test values of PPND16.
  CHECK(normal_quantile(0.25) == Approx(-0.6744897501960817));
  CHECK(normal_quantile(0.001) == Approx(-3.090232306167814));
  CHECK(normal_quantile(1e-20) == Approx(-9.262340089798408));
}

TEST_CASE("law: quantiles are odd around the middle and grow") {
  CHECK(normal_quantile(0.5) == 0);
  double before = normal_quantile(1e-12);
  for (int i = 1; i < 1000; ++i) {
    const double place = i / 1000.0, here = normal_quantile(place);
    CHECK(here > before);
    CHECK(here == Approx(-normal_quantile(1 - place)));
    before = here;
  }
}

TEST_CASE("law: cut lengths keep their mean, fall, and end at the room") {
  for (const double spread : {0.0, 0.3, 0.8, 1.5, 3.0}) {
    for (const double mean : {20.0, 500.0, 900.0, 1000.0}) {
      const std::vector<double> tokens = answer_lengths({mean, 1000, spread}, 777);
      CAPTURE(spread);
      CAPTURE(mean);
      CHECK(tokens.size() == 777);
      CHECK(std::is_sorted(tokens.begin(), tokens.end(), std::greater<>{}));
      CHECK(tokens.front() <= 1000);
      CHECK(tokens.back() >= 1);
      // A length below a token counts as one, which wide spreads and short answers have.
      if (tokens.back() > 1) CHECK(mean_of(tokens) == Approx(mean));
    }
  }
}

TEST_CASE("by hand: lengths of 1 and 3 tokens attend as much as sequences of 2.5") {
  // Four tokens, squares 1 + 9: 10 / 4, in the mean 2.
  const SequenceLengths found = sequence_lengths(0, {1, 3});
  CHECK(found.mean == 2);
  CHECK(found.equal == Approx(2.5));
  CHECK(sequence_lengths(5, {7, 7}).equal == Approx(12));
}

TEST_CASE("by hand: packs of equal sequences") {
  // 100 sequences of 950 in the mean, 1,000 by attention; cp 2 and tp 4 divide 1,008 = 63 x 16.
  // 95,000 tokens are 94.2 of them, 47.1 a replica; 4,096 tokens hold 4: 12 packs of 4 each.
  const PackedBatch packed = packed_batch({950, 1000}, 100, 4096, {4, 2, 2});
  CHECK(packed.sequence == 1008);
  CHECK(packed.micro_batch == 4);
  CHECK(packed.batch == 96);
  // Five sequences of one replica are a pack that is not full; 11 for packs of 5 are 3 of 4.
  CHECK(packed_batch({1000, 1000}, 11, 5000, {1, 1, 1}).micro_batch == 4);
  CHECK(packed_batch({1000, 1000}, 11, 5000, {1, 1, 1}).batch == 12);
  CHECK(packed_batch({100, 100}, 5, 4096, {1, 1, 1}).micro_batch == 5);
  CHECK(packed_batch({5000, 5000}, 3, 4096, {1, 1, 8}).batch == 8);
}

TEST_CASE("law: packs hold all tokens, and no more than a sequence of each beside") {
  for (int tp : {1, 2, 8}) {
    for (int cp : {1, 2, 4}) {
      for (int replicas : {1, 3, 16}) {
        const SequenceLengths lengths{700, 901};
        const PackedBatch packed = packed_batch(lengths, 333, 8192, {tp, cp, replicas});
        const double packs = packed.batch / packed.micro_batch;
        CHECK(packed.batch * packed.sequence >= 333 * 700.0 - 1e-6);
        CHECK(packed.batch * packed.sequence < 333 * 700.0 + packs * packed.sequence);
        CHECK(packed.sequence >= lengths.equal);
      }
    }
  }
}

TEST_CASE("by hand: the longest of two of the lengths 1 and 3 is 3 three times of four") {
  CHECK(expected_longest({3, 1}, 1) == Approx(2));
  CHECK(expected_longest({3, 1}, 2) == Approx(3 * 0.75 + 1 * 0.25));
  CHECK(expected_longest({3, 1}, 60) == Approx(3));
  CHECK(expected_longest({7, 7, 7}, 5) == 7);
}

TEST_CASE("law: a larger micro-batch is padded to no less, up to the longest of all") {
  const std::vector<double> lengths = answer_lengths({500, 4000, 1.0}, 333);
  double before = mean_of(lengths);
  CHECK(expected_longest(lengths, 1) == Approx(before));
  for (double group = 2; group < 1e4; group *= 2) {
    const double here = expected_longest(lengths, group);
    CHECK(here > before);
    CHECK(here <= lengths.front());
    before = here;
  }
}

TEST_CASE("by hand: padded micro-batches, as many for every replica") {
  const std::vector<double> lengths{900, 300};
  // The longest of four is expected at 900 x 15/16 + 300 / 16 = 862.5; 2 cp chunks of 4 divide 864.
  const PackedBatch padded = padded_batch(lengths, 100, 4, 4, {4, 2, 8});
  CHECK(padded.sequence == 864);
  CHECK(padded.micro_batch == 4);
  CHECK(padded.batch == 4 * 4 * 8);  // 12.5 a replica are four of four
  CHECK(padded_batch(lengths, 100, 4, 100, {4, 2, 8}).sequence == 912);  // 900 of all
  // No micro-batch is larger than what a replica has.
  CHECK(padded_batch(lengths, 10, 64, 64, {1, 1, 8}).micro_batch == 2);
  CHECK(padded_batch({512}, 256, 2, 2, {1, 1, 8}).batch == 256);
  CHECK(padded_batch({512}, 256, 2, 2, {1, 1, 8}).sequence == 512);
}

}  // namespace
}  // namespace scalemodel
