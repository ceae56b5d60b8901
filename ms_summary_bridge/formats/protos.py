"""Message classes of both file formats, kept apart from everybody else's.

`ms_pb` holds the messages of MindSpore, `tb_pb` those of TensorBoard and our own that travel in its
files. They are used like generated modules::

    event = tb_pb.Event(wall_time=1.5, step=3)
    event.summary.value.add(tag="loss", simple_value=0.25)
    tb_pb.SessionLog.START, tb_pb.DataType.DT_FLOAT, tb_pb.hparams.HParamsPluginData

The classes are built when they are first asked for, from the compiled text of proto/ and in a
descriptor pool of our own. Generated modules would not do: they refuse a protobuf older than the protoc
that wrote them, and the shared pool refuses a name that another package has declared differently.
Messages of different pools do not mix; bytes are what passes between them.

Source: the head of each file in proto/ names the descriptor that it follows. The message factory:
https://github.com/protocolbuffers/protobuf/blob/v3.20.3/python/google/protobuf/message_factory.py
(`MessageFactory.GetPrototype`, up to 4.21) and `GetMessageClass` in the same file from 4.22 on.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import DecodeError

__all__ = ["DESCRIPTOR_SET", "PARSE_ERRORS", "ProtoPackage", "ms_pb", "parse_fault", "tb_pb"]

DESCRIPTOR_SET: Final = "descriptors.binpb"
"""File beside this module, written by tools/build_protos."""

PARSE_ERRORS: Final = (DecodeError, ValueError, RecursionError, SystemError)
"""What protobuf raises at bytes that are not such a message, and at a text that is not UTF-8 when it is looked at.

SystemError: the implementation in C++, which is the one of 3.20 on Python 3.10.
"""

_lock = threading.Lock()


def parse_fault(error: Exception) -> str:
    """Says what is wrong with bytes at which one of `PARSE_ERRORS` was raised.

    Each implementation of protobuf has words of its own, and which one runs depends on what the process imported
    before. A report must be the same from all of them, so protobuf's words never stand in one.
    """
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    return "the message is malformed" if isinstance(error, (DecodeError, SystemError, UnicodeError)) else str(error)


class ProtoPackage:
    """The messages, enums and inner packages of one proto package, as attributes.

    An attribute is a message class, an `EnumTypeWrapper` or a `ProtoPackage`. It is made at the first
    access, by one thread, and kept: the same name always gives the same object.

    Args:
        package: Full name of the package. Nothing is loaded before the first attribute is asked for.
    """

    def __init__(self, package: str) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        """Makes the message class, the enum wrapper or the inner package of this name; else raises AttributeError."""
        # Names with an underscore are asked for by copy, inspect and their like; no message has one.
        if not name.startswith("_"):
            with _lock:
                made = _descriptors().make(self._package, name)
                if made is not None:
                    # From now on the name is found without this method.
                    self.__dict__[name] = made
                    return made
        raise AttributeError(f"proto package {self._package} has no message or enum {name!r}")

    def __dir__(self) -> list[str]:
        with _lock:
            return sorted(_descriptors().kinds.get(self._package, {}))

    def __repr__(self) -> str:
        return f"ProtoPackage({self._package!r})"


class _Descriptors:
    """The descriptor set, in a pool of its own, with a table of what is in it."""

    def __init__(self, serialized: bytes) -> None:
        # Here, since a run of plain scalars never gets here, and they take a tenth of its time to load.
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        self.pool: Final = descriptor_pool.DescriptorPool()
        self.kinds: Final[dict[str, dict[str, Callable[[str], Any]]]] = {}
        """Package, then name in it: the function that makes the thing of that full name."""
        factory: Any = message_factory
        self._class_of: Callable[[Any], Any] = (
            getattr(factory, "GetMessageClass", None) or factory.MessageFactory(self.pool).GetPrototype
        )
        self._classes: Final[dict[str, Any]] = {}

        # Each file comes after those that it imports.
        for file in descriptor_pb2.FileDescriptorSet.FromString(serialized).file:
            self.pool.AddSerializedFile(file.SerializeToString())
            names = self.kinds.setdefault(file.package, {})
            names.update((message.name, self._message) for message in file.message_type)
            names.update((enum.name, self._enum) for enum in file.enum_type)
        for package in tuple(self.kinds):
            outer, _, inner = package.rpartition(".")
            if outer in self.kinds:
                self.kinds[outer][inner] = ProtoPackage

    def make(self, package: str, name: str) -> Any:
        """Makes one thing, or returns None when there is none of that name."""
        maker = self.kinds.get(package, {}).get(name)
        return None if maker is None else maker(f"{package}.{name}")

    def _enum(self, full_name: str) -> Any:
        from google.protobuf.internal import enum_type_wrapper

        # The type stubs know the wrapper as a metaclass only.
        wrapper: Any = enum_type_wrapper.EnumTypeWrapper
        return wrapper(self.pool.FindEnumTypeByName(full_name))

    def _message(self, full_name: str) -> Any:
        return self._class_with_parts(self.pool.FindMessageTypeByName(full_name))

    def _class_with_parts(self, descriptor: Any) -> Any:
        """Makes a message class and those of all messages in it, and keeps them.

        upb before 4.25 crashes where it meets a field whose class nobody has asked for, or holds any more
        (https://github.com/protocolbuffers/protobuf/issues/12047). The pure Python factory does not give
        a class its inner messages as attributes.
        """
        known = self._classes.get(descriptor.full_name)
        if known is not None:
            return known
        cls = self._classes[descriptor.full_name] = self._class_of(descriptor)
        for inner in descriptor.nested_types:
            inner_class = self._class_with_parts(inner)
            if not hasattr(cls, inner.name):
                setattr(cls, inner.name, inner_class)
        for field in descriptor.fields:
            if field.message_type is not None:
                self._class_with_parts(field.message_type)
        return cls


@functools.cache
def _descriptors() -> _Descriptors:
    """Returns the loaded descriptor set; the caller holds the lock, so that there is one."""
    from importlib import resources

    package = __name__.rpartition(".")[0]
    return _Descriptors(resources.files(package).joinpath(DESCRIPTOR_SET).read_bytes())


ms_pb: Final = ProtoPackage("ms_summary_bridge.mindspore")
"""MindSpore: Event, Summary, Explain, LossLandscape, GraphProto, ModelProto, LineageEvent and their parts."""

tb_pb: Final = ProtoPackage("ms_summary_bridge.tensorboard")
"""TensorBoard: Event, Summary, TensorProto, GraphDef, the plugins' data, and our PluginContent and Origin."""
