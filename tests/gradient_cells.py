"""One-step training cells in the orders in which people write them, and some that GradientSummary refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore
from mindspore import amp, nn, ops

SCALE = 1024.0
SIDE = 8
CLIP = 0.01

unscale = ops.MultitypeFuncGraph("unscale")


@unscale.register("Tensor", "Tensor")
def _unscale(scale: Any, gradient: Any) -> Any:
    return gradient * ops.reciprocal(scale).astype(gradient.dtype)


class Network(nn.Cell):
    """Two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Dense(SIDE, SIDE)
        self.out = nn.Dense(SIDE, 1)

    def construct(self, x: Any) -> Any:
        """Returns one number for each row."""
        return self.out(ops.relu(self.hidden(x)))


class Losses(nn.Cell):
    """Returns a loss for each row."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, x: Any, y: Any) -> Any:
        """Returns squares."""
        return ops.square(self.network(x) - y).reshape(-1)


class Base(nn.Cell):
    """What most hand-written cells begin with."""

    def __init__(self, network: nn.Cell, optimizer: Any, *, sens_param: bool = True) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.network.set_grad()
        self.optimizer = optimizer
        self.weights = optimizer.parameters
        self.grad = ops.GradOperation(get_by_list=True, sens_param=sens_param)
        self.grad_reducer = nn.Identity()
        self.hyper_map = ops.HyperMap()
        self.scale = SCALE

    def sens(self, loss: Any) -> Any:
        """Returns the scale in the shape of the loss."""
        return ops.fill(loss.dtype, loss.shape, self.scale)


class PreTraining(nn.TrainOneStepWithLossScaleCell):
    """Grad, reducer, unscale, clip, optimizer where nothing overflowed."""

    def construct(self, x: Any, y: Any) -> Any:
        """Trains one step."""
        weights = self.weights
        loss = self.network(x, y)
        scaling_sens = self.scale_sense
        status, scaling_sens = self.start_overflow_check(loss, scaling_sens)
        grads = self.grad(self.network, weights)(x, y, ops.cast(scaling_sens, mindspore.float32))
        grads = self.grad_reducer(grads)
        grads = self.hyper_map(ops.partial(unscale, scaling_sens), grads)
        grads = ops.clip_by_global_norm(grads, CLIP)
        cond = self.get_overflow_status(status, grads)
        overflow = self.process_loss_scale(cond)
        if not overflow:
            loss = ops.depend(loss, self.optimizer(grads))
        return loss, cond, scaling_sens

    def get_overflow_status(self, status: Any, compute_output: Any) -> Any:
        """Says whether a gradient is not finite, in a way that a CPU can."""
        return ops.logical_not(ops.isfinite(compute_output[0]).all())


class WithLossScale(nn.TrainOneStepWithLossScaleCell):
    """MindSpore's own step with an overflow check that a CPU has."""

    def get_overflow_status(self, status: Any, compute_output: Any) -> Any:
        """Says whether a gradient is not finite."""
        return ops.logical_not(ops.isfinite(compute_output[0]).all())


class FineTuning(Base):
    """Grad, unscale, clip, reducer, optimizer; the scale is an input of one element."""

    def construct(self, x: Any, y: Any) -> Any:
        """Trains one step."""
        loss = self.network(x, y)
        scaling_sens = ops.tuple_to_array((self.scale,))
        grads = self.grad(self.network, self.weights)(x, y, ops.cast(scaling_sens.reshape(()), mindspore.float32))
        grads = self.hyper_map(ops.partial(unscale, scaling_sens), grads)
        grads = ops.clip_by_global_norm(grads, CLIP)
        grads = self.grad_reducer(grads)
        return ops.depend(loss, self.optimizer(grads))


class Tracking(nn.TrainOneStepCell):
    """Grad, clip, reducer, optimizer, in a sub-class that keeps the rest of MindSpore's."""

    def construct(self, *inputs: Any) -> Any:
        """Trains one step."""
        loss = self.network(*inputs)
        sens = ops.fill(loss.dtype, loss.shape, self.sens)
        grads = self.grad(self.network, self.weights)(*inputs, sens)
        grads = ops.clip_by_global_norm(grads, CLIP)
        grads = self.grad_reducer(grads)
        return ops.depend(loss, self.optimizer(grads))


class NoReducer(Base):
    """Grad, clip, optimizer, without a scale."""

    def __init__(self, network: nn.Cell, optimizer: Any) -> None:
        super().__init__(network, optimizer, sens_param=False)

    def construct(self, x: Any, y: Any) -> Any:
        """Trains one step."""
        loss = self.network(x, y)
        grad = self.grad
        grads = ops.clip_by_global_norm(grad(self.network, self.weights)(x, y), CLIP)
        return ops.depend(loss, self.optimizer(grads))


class InBranches(Base):
    """The gradient is taken in one of two methods, in a branch each."""

    def construct(self, x: Any, y: Any) -> Any:
        """Trains one step."""
        loss = self.network(x, y)
        if self.scale > 1:
            grads = self.scaled(loss, x, y)
        else:
            grads = self.grad(self.network, self.weights)(x, y, loss)
        return ops.depend(loss, self.optimizer(grads))

    def scaled(self, loss: Any, x: Any, y: Any) -> Any:
        """Returns gradients."""
        grads = self.grad(self.network, self.weights)(x, y, self.sens(loss))
        return self.hyper_map(ops.partial(unscale, mindspore.Tensor(self.scale)), grads)


class ValueAndGrad(nn.Cell):
    """The functional style: `value_and_grad` of the network."""

    def __init__(self, network: nn.Cell, optimizer: Any) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.optimizer = optimizer
        self.grad_fn = mindspore.value_and_grad(network, None, optimizer.parameters)

    def construct(self, x: Any, y: Any) -> Any:
        """Trains one step."""
        loss, grads = self.grad_fn(x, y)
        return ops.depend(loss, self.optimizer(ops.clip_by_global_norm(grads, CLIP)))


class Scaler(nn.Cell):
    """The functional style with a loss scaler: a function that scales the loss, with auxiliary outputs."""

    def __init__(self, network: nn.Cell, optimizer: Any) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.optimizer = optimizer
        self.loss_scaler = amp.DynamicLossScaler(SCALE, 2, 1000)
        self.grad_fn = mindspore.value_and_grad(self.forward, None, optimizer.parameters, has_aux=True)

    def forward(self, x: Any, y: Any) -> Any:
        """Returns the scaled loss, and the loss."""
        loss = self.network(x, y)
        return self.loss_scaler.scale(loss), loss

    def construct(self, x: Any, y: Any) -> Any:
        """Trains one step."""
        (_, loss), grads = self.grad_fn(x, y)
        grads = self.loss_scaler.unscale(grads)
        return ops.depend(loss, self.optimizer(grads))


class Inner(nn.Cell):
    """The gradient is taken in a cell inside, of the inputs as well."""

    def __init__(self, network: nn.Cell, optimizer: Any) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.optimizer = optimizer
        self.forward_and_grad = nn.ForwardValueAndGrad(network, optimizer.parameters, get_all=True, get_by_list=True)

    def construct(self, x: Any, y: Any) -> Any:
        """Trains one step."""
        loss, (_, grads) = self.forward_and_grad(x, y)
        return ops.depend(loss, self.optimizer(grads))


class Outer(nn.Cell):
    """Compiles a cell inside another, as MindSpore does in data sink mode."""

    def __init__(self, cell: Any) -> None:
        super().__init__(auto_prefix=False)
        self.cell = cell
        self.network = cell.network
        self.optimizer = cell.optimizer

    def construct(self, *inputs: Any) -> Any:
        """Trains one step."""
        return self.cell(*inputs)


# ------------------------------------------------------------------ refused when they are made


class Local(Base):
    """The operation is made in `construct`."""

    def construct(self, x: Any, y: Any) -> Any:
        """Trains one step."""
        grads = ops.GradOperation(get_by_list=True)(self.network, self.weights)(x, y)
        return ops.depend(self.network(x, y), self.optimizer(grads))


class Loop(Base):
    """The gradient is a sum over micro-batches."""

    def construct(self, x: Any, y: Any) -> Any:
        """Trains one step."""
        loss = self.network(x, y)
        for _ in range(2):
            grads = self.grad(self.network, self.weights)(x, y, self.sens(loss))
        return ops.depend(loss, self.optimizer(grads))


class Twice(Base):
    """The gradient is taken a second time where a condition holds."""

    def construct(self, x: Any, y: Any) -> Any:
        """Trains one step."""
        loss = self.network(x, y)
        grads = self.grad(self.network, self.weights)(x, y, self.sens(loss))
        if self.scale > 1:
            grads = self.grad(self.network, self.weights)(x, y, self.sens(loss))
        return ops.depend(loss, self.optimizer(grads))


class Method(Base):
    """The gradient is of a method, which scales the loss."""

    def forward(self, x: Any, y: Any) -> Any:
        """Returns the scaled loss."""
        return self.network(x, y) * self.scale

    def construct(self, x: Any, y: Any) -> Any:
        """Trains one step."""
        grads = self.grad(self.forward, self.weights)(x, y, self.sens(self.network(x, y)))
        return ops.depend(self.network(x, y), self.optimizer(grads))


class OtherOrder(NoReducer):
    """The parameters are not those of the optimizer in its order."""

    def __init__(self, network: nn.Cell, optimizer: Any) -> None:
        super().__init__(network, optimizer)
        self.weights = mindspore.ParameterTuple(list(reversed(optimizer.parameters)))


class Names(ValueAndGrad):
    """The gradients come with names."""

    def __init__(self, network: nn.Cell, optimizer: Any) -> None:
        super().__init__(network, optimizer)
        self.grad_fn = mindspore.value_and_grad(network, None, optimizer.parameters, return_ids=True)


# ------------------------------------------------------------------ refused in the first step


class OwnSens(Base):
    """The sens of many numbers, in a cell of somebody's own."""

    def construct(self, x: Any, y: Any) -> Any:
        """Trains one step."""
        losses = self.network(x, y)
        grads = self.grad(self.network, self.weights)(x, y, self.sens(losses))
        return ops.depend(losses.mean(), self.optimizer(grads))


class Elsewhere(Base):
    """The branch that runs takes its gradients by no attribute."""

    def construct(self, x: Any, y: Any) -> Any:
        """Trains one step."""
        loss = self.network(x, y)
        if self.scale < 1:
            grads = self.grad(self.network, self.weights)(x, y, self.sens(loss))
        else:
            grads = ops.GradOperation(get_by_list=True)(self.network, self.weights)(x, y)
        return ops.depend(loss, self.optimizer(grads))


class Given(Base):
    """The parameters come from a call, in an order that is not the optimizer's."""

    def __init__(self, network: nn.Cell, optimizer: Any) -> None:
        super().__init__(network, optimizer, sens_param=False)
        self.reversed = mindspore.ParameterTuple(list(reversed(optimizer.parameters)))

    def chosen(self) -> Any:
        """Returns the parameters."""
        return self.reversed

    def construct(self, x: Any, y: Any) -> Any:
        """Trains one step."""
        loss = self.network(x, y)
        grads = self.grad(self.network, self.chosen())(x, y)
        return ops.depend(loss, self.optimizer(grads[::-1]))


def momentum(network: nn.Cell, scale: float = 1.0) -> Any:
    """Returns an optimizer."""
    return nn.Momentum(network.trainable_params(), 0.05, 0.9, loss_scale=scale)


def ordered(network: nn.Cell) -> Any:
    """Returns an optimizer with groups, in an order of its own."""
    parameters = network.trainable_params()
    groups = [{"params": parameters[2:], "lr": 0.01}, {"params": parameters[:2]}, {"order_params": parameters[::-1]}]
    return nn.Adam(groups, 0.02)


def manager() -> Any:
    """Returns what keeps the loss scale."""
    return nn.DynamicLossScaleUpdateCell(SCALE, 2, 1000)


Build = Callable[[nn.Cell], Any]

CELLS: dict[str, Build] = {
    "plain": lambda network: nn.TrainOneStepCell(network, momentum(network)),
    "fixed scale": lambda network: nn.TrainOneStepCell(network, momentum(network, SCALE), sens=SCALE),
    "returns gradients": lambda network: nn.TrainOneStepCell(network, momentum(network), return_grad=True),
    "loss scale": lambda network: WithLossScale(network, momentum(network), manager()),
    "pre-training": lambda network: PreTraining(network, momentum(network), manager()),
    "fine-tuning": lambda network: FineTuning(network, momentum(network)),
    "tracking": lambda network: Tracking(network, momentum(network), sens=1.0),
    "tracking scaled": lambda network: Tracking(network, nn.SGD(network.trainable_params(), 0.1, loss_scale=3.0), 3.0),
    "no reducer": lambda network: NoReducer(network, momentum(network)),
    "branches": lambda network: InBranches(network, momentum(network)),
    "ordered groups": lambda network: NoReducer(network, ordered(network)),
    "value_and_grad": lambda network: ValueAndGrad(network, momentum(network)),
    "loss scaler": lambda network: Scaler(network, momentum(network)),
    "inner": lambda network: Inner(network, momentum(network)),
    "mixed precision": lambda network: amp.build_train_network(
        network, momentum(network, SCALE), level="O2", loss_scale_manager=amp.FixedLossScaleManager(SCALE, False)
    ),
    "losses": lambda network: nn.TrainOneStepCell(network, momentum(network, SCALE), sens=SCALE),
    "own losses": lambda network: OwnSens(network, momentum(network, SCALE)),
}
"""Of a network that returns a loss (`losses`: one for each row)."""

REFUSED: dict[str, Build] = {
    "local": lambda network: Local(network, momentum(network)),
    "loop": lambda network: Loop(network, momentum(network)),
    "twice": lambda network: Twice(network, momentum(network)),
    "method": lambda network: Method(network, momentum(network)),
    "other order": lambda network: OtherOrder(network, momentum(network)),
    "names": lambda network: Names(network, momentum(network)),
    "scaler": lambda network: Scaler(network, momentum(network)),
    "function": lambda network: lambda x, y: network(x, y),
}
IN_FIRST_STEP: dict[str, Build] = {
    "own losses": lambda network: OwnSens(network, momentum(network, SCALE)),
    "no sens": lambda network: NoReducer(network, momentum(network, SCALE)),
    "elsewhere": lambda network: Elsewhere(network, momentum(network)),
    "other shapes": lambda network: Given(network, momentum(network)),
}
