#include "scalemodel/economics/scaling.hpp"

#include "support.hpp"

namespace scalemodel {
namespace {

using testing::Approx;

TEST_CASE("a job that scales linearly is fully efficient and returns all of every accelerator") {
  for (const double accelerators : {1.0, 8.0, 131072.0}) {
    for (const double factor : {1.5, 2.0, 16.0}) {
      CAPTURE(accelerators);
      CAPTURE(factor);
      const double rate = 1234.5 * accelerators;
      CHECK(scaling_efficiency(factor * rate, factor * accelerators, rate, accelerators) ==
            Approx(1));
      CHECK(marginal_return(factor * rate, factor * accelerators, rate, accelerators) == Approx(1));
      CHECK(marginal_return(rate, factor * accelerators, rate, accelerators) == 0);
    }
  }
}

TEST_CASE("efficiencies of two steps multiply to that of both") {
  const double first = scaling_efficiency(90, 10, 12, 1);
  const double second = scaling_efficiency(500, 80, 90, 10);
  CHECK(first * second == Approx(scaling_efficiency(500, 80, 12, 1)));
}

TEST_CASE("returns averaged over the added accelerators are those of the whole step") {
  // 37.22 % less per accelerator over sixteen times as many: arXiv 2411.13055.
  const double whole = marginal_return(16 * 0.6278, 16, 1, 1);
  CHECK(whole == Approx(0.603).epsilon(0.001));
  const double middle = 3;
  const double low = marginal_return(middle, 4, 1, 1);
  const double high = marginal_return(16 * 0.6278, 16, middle, 4) * (middle / 4);
  CHECK((3 * low + 12 * high) / 15 == Approx(whole));
}

TEST_CASE("strong scaling is the ratio of accelerator-seconds") {
  const double batch = 4e6, before = 7, after = 2.5;
  CHECK(scaling_efficiency(batch / after, 256, batch / before, 64) ==
        Approx(64 * before / (256 * after)));
}

TEST_CASE("counting what the mask hides adds the attention once more") {
  const Flop products{90}, attention{10};
  CHECK(full_attention_mfu(0.4, products, attention, 3) == Approx(0.4 * 330 / 300));
  CHECK(full_attention_mfu(0.4, products, Flop{}, 3) == Approx(0.4));
  CHECK(full_attention_mfu(0.4, products, attention, 2) == Approx(0.4 * 240 / 210));
}

TEST_CASE("tokens per joule fall as power rises and keep with both counts") {
  const double one = accelerator_tokens_per_joule(1e6, 100, Watts{600});
  CHECK(one == Approx(1e6 / 6e4));
  CHECK(accelerator_tokens_per_joule(2e6, 200, Watts{600}) == Approx(one));
  CHECK(accelerator_tokens_per_joule(1e6, 100, Watts{1200}) == Approx(one / 2));
}

}  // namespace
}  // namespace scalemodel
