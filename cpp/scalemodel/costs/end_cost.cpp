#include "scalemodel/costs/end_cost.hpp"

#include "scalemodel/costs/layer_builder.hpp"
#include "scalemodel/costs/layer_operators.hpp"
#include "scalemodel/costs/matrix_updates.hpp"

namespace scalemodel {

EndCost embedding_cost(const Model& model, const LayerLayout& layout, const Conditions& conditions,
                       const Cluster& cluster, MessageList* messages) {
  LayerBuilder builder(conditions, cluster, nullptr, messages);
  const double tokens = static_cast<double>(layout.micro_batch) * conditions.sequence / layout.cp;
  const double element = operand_bytes(conditions.storage);
  const Bytes rows{tokens * model.hidden * element};
  builder.elementwise("embedding", 2 * rows, conditions.frozen_base ? Bytes{} : 3 * rows,
                      cluster.accelerator.elementwise.add_fraction);
  EndCost cost;
  cost.forward.compute = builder.forward();
  cost.backward.compute = builder.backward();
  if (layout.tp > 1) {
    const auto run = [&](Collective op, double forward, double backward) {
      return builder.message({Communicator::tp, op, rows, layout.tp_group, forward, backward});
    };
    if (layout.sequence_parallel) {
      cost.forward.tp = run(Collective::reduce_scatter, 1, 0);
      cost.backward.tp = run(Collective::all_gather, 0, 1);
    } else {
      cost.forward.tp = run(Collective::all_reduce, 1, 0);
    }
  }
  cost.parameters = model.embedding_parameters / layout.tp;
  cost.trainable = conditions.frozen_base ? 0 : cost.parameters;
  if (conditions.matrix_optimizer) {
    cost.updates = word_updates(cost.parameters, model.hidden, 0, conditions, cluster);
  }
  return cost;
}

EndCost head_cost(const Model& model, const LayerLayout& layout, const Conditions& conditions,
                  const Cluster& cluster, const LayerTimers& timers, OperatorList* list,
                  MessageList* messages) {
  LayerBuilder builder(conditions, cluster, list, messages);
  const double tokens = static_cast<double>(layout.micro_batch) * conditions.sequence / layout.cp;
  const double columns = head_columns(conditions.stack, model.vocab, layout.tp);
  const double element = operand_bytes(conditions.storage);
  builder.linear("head", tokens, columns, model.hidden,
                 {conditions.frozen_base, 1, &timers.storage});
  if (model.mtp_layers > 0) {
    builder.linear("mtp_projection", tokens, static_cast<double>(model.hidden) / layout.tp,
                   2.0 * model.hidden, {conditions.frozen_base, 1, &timers.linear});
  }
  // A loss not split over the tensor ranks: every rank copies the gathered logits together and sees
  // the whole vocabulary.
  const bool whole = layout.tp > 1 && conditions.stack.whole_logits;
  const double logits = tokens * (whole ? layout.tp * columns : columns);
  add_loss(builder, conditions, cluster, logits, whole ? 4 * element : 0);
  EndCost cost;
  // Each multi-token-prediction module runs the shared head once more.
  const double heads = 1.0 + model.mtp_layers;
  cost.forward.compute = heads * builder.forward();
  cost.backward.compute = heads * builder.backward();
  cost.weight_gradient = heads * builder.weight_gradient();
  if (layout.tp > 1) {
    const Bytes stream{heads * tokens * model.hidden * element};
    const auto run = [&](Collective op, Bytes bytes, double forward, double backward) {
      return builder.message({Communicator::tp, op, bytes, layout.tp_group, forward, backward});
    };
    if (layout.sequence_parallel) {
      cost.forward.tp = run(Collective::all_gather, stream, 1, 0);
      cost.backward.tp = run(Collective::reduce_scatter, stream, 0, 1);
    } else {
      cost.backward.tp = run(Collective::all_reduce, stream, 0, 1);
    }
    if (whole) {
      cost.forward.tp += run(Collective::all_gather, Bytes{heads * logits * element}, 1, 0);
    }
  }
  cost.parameters = model.head_parameters / layout.tp + model.final_norm_parameters +
                    model.mtp_layers * model.mtp_projection_parameters / layout.tp;
  cost.trainable = conditions.frozen_base ? 0 : cost.parameters;
  if (conditions.matrix_optimizer) {
    cost.updates = word_updates(model.head_parameters / layout.tp, model.hidden,
                                model.final_norm_parameters, conditions, cluster);
  }
  // Inputs of the final norm and of the head; a multi-token-prediction module saves its own, and
  // before them the shifted embedding and, behind a norm each, what its projection reads.
  cost.saved = Bytes{tokens * model.hidden * element * (2 + 5.0 * model.mtp_layers)};
  // Fused: logits and their gradient in the storage format. Unfused: copies in FP32 beside them,
  // as many as the stack's loss makes.
  const Stack& stack = conditions.stack;
  const double held = stack.whole_logits ? tokens * layout.tp * columns : logits;
  cost.working = held * (stack.fused_loss ? Bytes{2 * element}
                         : layout.tp == 1 ? stack.loss_per_logit
                                          : stack.split_loss_per_logit);
  // The losses of all modules come before the first backward pass. Until then each keeps what its
  // own needs: a fused one the gradient, which takes the place of the logits, others the softmax in
  // FP32. Source: NVIDIA/Megatron-LM, core/transformer/multi_token_prediction.py,
  // process_mtp_loss; NVIDIA/TransformerEngine, common/triton/cross_entropy.py.
  cost.working += model.mtp_layers * held * Bytes{stack.fused_loss ? element : 4};
  return cost;
}

}  // namespace scalemodel
