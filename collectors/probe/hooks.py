"""Installs the probe's hooks in torch, safetensors and Lightning when a script imports them."""

from __future__ import annotations

import functools
import sys
import time

from . import fields
from .files import FileCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, TypeVar

    from .observing import Probe

    _F = TypeVar("_F", bound=Callable[..., Any])


#: File name of wrapped functions. A warning's ``stacklevel`` does not count frames of files with
#: these words in their names, so that a warning names the script's line.
_UNCOUNTED = __file__ + " (importlib._bootstrap)"


def _instead_of(original: Any) -> Callable[[_F], _F]:
    """Do the same as ``functools.wraps``, and hide the function's frame from warnings."""

    def wrap(function: _F) -> _F:
        function.__code__ = function.__code__.replace(co_filename=_UNCOUNTED)
        functools.update_wrapper(function, original)
        return function

    return wrap


class Finder:
    """Runs an action after the first import of each observed module."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.actions = {
            "torch.optim.optimizer": _hook_optimizers,
            "torch.nn.parallel.distributed": _remember("DistributedDataParallel", "networks"),
            "torch.amp.grad_scaler": _remember("GradScaler", "scalers"),
            "deepspeed.runtime.zero.stage_1_and_2": _remember("DeepSpeedZeroOptimizer", "zeros"),
            "torch.utils.data.dataloader": _hook_loaders,
            "torch.serialization": _hook_files({"save": _argument(1, "f")}, _argument(0, "f")),
            "torch.distributed.checkpoint.state_dict": _hook_state_dicts,
            "torch.distributed.checkpoint.state_dict_saver": _hook_dcp_saver,
            "torch.distributed.checkpoint.state_dict_loader": _hook_files({}, _checkpoint),
            "safetensors.torch": _hook_files(
                {"save_file": _argument(1, "filename")}, _argument(0, "filename"), "load_file"
            ),
        }
        self.actions["safetensors.numpy"] = self.actions["safetensors.torch"]
        for lightning, pytorch in (
            ("lightning.fabric", "lightning.pytorch"),
            ("lightning_fabric", "pytorch_lightning"),
        ):
            self.actions[f"{lightning}.utilities.cloud_io"] = _hook_files(
                {"_atomic_save": _argument(1, "filepath")}
            )
            self.actions[f"{pytorch}.plugins.io.async_plugin"] = _hook_lightning_async

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find an observed module with the other finders; the action for the module runs after the
        module's own code.
        """
        if name not in self.actions or not self.probe.armed:
            return None
        # Those before have been asked; another that acts likewise must not ask us in turn.
        behind = sys.meta_path.index(self) + 1 if self in sys.meta_path else len(sys.meta_path)
        for finder in sys.meta_path[behind:]:
            find = getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                self._follow(name, spec.loader)
                return spec
        return None

    def _follow(self, name: str, loader: Any) -> None:
        # On the instance, so that the module keeps a loader of its ordinary type.
        try:
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                self.act(name, module)

            loader.exec_module = exec_module
        except AttributeError as error:
            self.probe.failed(name, error)

    def act(self, name: str, module: Any) -> None:
        """Install the hooks of one imported module."""
        try:
            self.actions[name](self.probe, module)
        except Exception as error:  # noqa: BLE001 - an import must not fail through us
            self.probe.failed(name, error)


def _hook_optimizers(probe: Probe, module: Any) -> None:
    before, after = probe.before_step, probe.after_step

    def brain_before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        before(optimizer, args, kwargs)

    def brain_after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        after(optimizer, args, kwargs)

    for hook in (brain_before_step, brain_after_step):
        # torch.compile runs such functions as they are instead of tracing them.
        hook._torchdynamo_disable = True  # type: ignore[attr-defined]  # torch's mark
    module.register_optimizer_step_pre_hook(brain_before_step)
    module.register_optimizer_step_post_hook(brain_after_step)


def _hook_loaders(probe: Probe, module: Any) -> None:
    base = module._BaseDataLoaderIter
    original = base.__next__

    @_instead_of(original)
    def __next__(self: Any) -> Any:
        began = time.monotonic_ns()
        data = original(self)
        if probe.armed:
            probe.after_next(self, data, began)
        return data

    base.__next__ = __next__


def _remember(name: str, into: str) -> Any:
    """Return an action that stores weak references to a class's new instances in ``Gradients``."""

    def act(probe: Probe, module: Any) -> None:
        made = getattr(probe.gradients, into)
        kind = getattr(module, name)
        original = kind.__init__

        @_instead_of(original)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            try:
                made.add(self)
            except Exception as error:  # noqa: BLE001 - a subclass that cannot be kept
                probe.failed(name, error)

        kind.__init__ = __init__

    return act


def _hook_files(savers: dict[str, Any], loaded: Any = None, loader: str = "load") -> Any:
    """Return an action that wraps a module's functions that write and read checkpoints."""

    def act(probe: Probe, module: Any) -> None:
        for name, written in savers.items():
            _wrap(probe, module, name, _saving, written)
        if loaded is not None:
            _wrap(probe, module, loader, _loading, loaded)

    return act


def _hook_state_dicts(probe: Probe, module: Any) -> None:
    """Ignore steps inside ``get_state_dict``, which initializes a new optimizer's state with a step
    with zero gradients and a learning rate of 0.
    """
    original = getattr(module, "_init_optim_state", None)
    if original is None:  # before torch 2.2, or renamed
        return

    @_instead_of(original)
    def _init_optim_state(*args: Any, **kwargs: Any) -> Any:
        before = getattr(probe.nested, "initialising", False)
        probe.nested.initialising = True
        try:
            return original(*args, **kwargs)
        finally:
            probe.nested.initialising = before

    module._init_optim_state = _init_optim_state


def _hook_dcp_saver(probe: Probe, module: Any) -> None:
    _hook_files({"save": _checkpoint})(probe, module)
    if hasattr(module, "async_save"):
        _wrap(probe, module, "async_save", _saving_later, _checkpoint)


def _hook_lightning_async(probe: Probe, module: Any) -> None:
    kind = module.AsyncCheckpointIO
    _wrap(probe, kind, "save_checkpoint", _saving_in_executor, _argument(2, "path"))


def _wrap(probe: Probe, module: Any, name: str, around: Any, file_of: Any) -> None:
    original = getattr(module, name)
    wrapped = around(probe, original, file_of)
    # Where the module was imported before us, its parent may have taken the name already.
    for holder in (module, sys.modules.get(module.__name__.rpartition(".")[0])):
        if getattr(holder, name, None) is original:
            setattr(holder, name, wrapped)


def _saving(probe: Probe, original: Any, file_of: Any) -> Any:
    @_instead_of(original)
    def save(*args: Any, **kwargs: Any) -> Any:
        # A checkpoint of many parts is one save: parts are written within its call.
        if not probe.armed or getattr(probe.nested, "saving", False):
            return original(*args, **kwargs)
        if probe.uploads.writes(file_of(args, kwargs)):
            return original(*args, **kwargs)
        probe.check_lease()
        probe.nested.saving = True
        probe.writing += 1
        began = time.monotonic_ns()
        probe.control[fields.LIFE], probe.control[fields.DOING] = began, 1
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            probe.failed_to_save(FileCall(file_of, args, kwargs), error)
            raise
        finally:
            probe.nested.saving = False
            probe.writing -= 1
            probe.control[fields.LIFE], probe.control[fields.DOING] = time.monotonic_ns(), 0
        probe.wrote(FileCall(file_of, args, kwargs), time.monotonic_ns() - began)
        return result

    return save


def _saving_later(probe: Probe, original: Any, file_of: Any) -> Any:
    """Wrap a save that returns a future. The checkpoint has the state at the call, and is complete
    when the future is done.
    """

    @_instead_of(original)
    def async_save(*args: Any, **kwargs: Any) -> Any:
        if not probe.armed:
            return original(*args, **kwargs)
        probe.check_lease()
        upload = probe.uploads.begin(file_of(args, kwargs), probe.steps)
        try:
            response = original(*args, **kwargs)
        except BaseException:
            probe.uploads.forget(upload)
            raise
        # Newer torch answers with two futures, where the copy is made in the background, too.
        upload.future = getattr(response, "upload_completion", response)
        return response

    return async_save


def _saving_in_executor(probe: Probe, original: Any, file_of: Any) -> Any:
    """Wrap a save that runs in a plugin's executor. The executor has one thread, so a task that is
    submitted after the save runs once the save has ended.
    """

    @_instead_of(original)
    def save_checkpoint(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not probe.armed:
            return original(self, *args, **kwargs)
        probe.check_lease()
        upload = probe.uploads.begin(file_of((self, *args), kwargs), probe.steps)
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            probe.uploads.forget(upload)
            raise
        try:
            upload.future = self._executor.submit(_raise_error_of, self)
        except Exception as error:  # noqa: BLE001 - never into training
            probe.uploads.forget(upload)
            probe.failed("save_checkpoint", error)
        return result

    return save_checkpoint


def _raise_error_of(plugin: Any) -> None:
    if plugin._error is not None:
        raise plugin._error


def _loading(probe: Probe, original: Any, file_of: Any) -> Any:
    @_instead_of(original)
    def load(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        probe.read(FileCall(file_of, args, kwargs))
        return result

    return load


def _argument(index: int, name: str) -> Any:
    def file_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args[index] if len(args) > index else kwargs.get(name)

    return file_of


def _checkpoint(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the directory that a call of torch.distributed.checkpoint names."""
    if kwargs.get("checkpoint_id") is not None:
        return kwargs["checkpoint_id"]
    storage = kwargs.get("storage_writer") or kwargs.get("storage_reader")
    if storage is None and len(args) > 1:
        storage = args[1]
    return getattr(storage, "path", None)
