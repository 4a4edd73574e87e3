"""Compile the fused kernels for GPUs, without one, and print what they take.

    python -m tests.torch.fused_compiled [--quick]

One line of JSON for each kernel and target: registers of a thread, bytes of the stack (spilled
registers), bytes of shared memory of a block.  `--quick`: one size of each.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fstgrad.torch.fused import chains, ctc, fields, trees

TARGETS = (80, 90)
TOOL = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
FLOATS = {"float64": "*fp64", "float32": "*fp32"}
TYPES = {
    "mask": "*i1", "inside": "*i1", "last": "*i1", "pivots": "*i32", "active": "*i32",
    "changed": "*i32", "source": "*i64", "incoming": "*i64", "length": "i32", "n": "i32",
    "states": "i32", "rows": "i32", "size": "i32", "labels": "i32", "by_item": "i64",
    "by_edge": "i64", "by_first": "i64", "by_second": "i64",
}  # fmt: skip


def jobs():
    """Yield (kernel, dtype, constants, number of warps)."""
    for dtype, size in (("float32", 128), ("float32", 16), ("float64", 64), ("float64", 16)):
        for kernel in (chains.forward_kernel, chains.backward_kernel):
            yield kernel, dtype, {"N": size}, max(1, size // 8)
    for size in (512, 32, 2048):
        for kernel in (ctc.forward_kernel, ctc.backward_kernel):
            yield kernel, "float64", {"N": size}, min(8, max(1, size // 128))
    for size, single_root in ((64, True), (64, False), (16, True)):
        for kernel in (trees.forward_kernel, trees.backward_kernel):
            yield kernel, "float64", {"N": size, "single_root": single_root}, max(1, size // 8)
    for dtype, size in (("float32", 16), ("float64", 16), ("float32", 2), ("float64", 32)):
        rows = max(1, min(fields.ROWS, 4096 // size**2))
        constants = {"R": rows, "C": size, "tol": 1e-6, "damping": 0.5}
        yield fields.sweep_kernel, dtype, constants, 4


def types_of(kernel, dtype, constants):
    """Return the types of a kernel's arguments; offsets are sums in float64."""
    given = {name: TYPES.get(name, FLOATS[dtype]) for name in kernel.arg_names}
    if kernel.fn.__module__ == chains.__name__:
        given |= {"values": "*fp64", "upstream": "*fp64"}
    given = {name: given[name] for name in kernel.arg_names}
    return given | dict.fromkeys(constants, "constexpr")


def compiled(kernel, dtype, constants, warps, target):
    source = ASTSource(kernel, types_of(kernel, dtype, constants), constexprs=constants)
    binary = triton.compile(
        source, target=GPUTarget("cuda", target, 32), options={"num_warps": warps}
    )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary.asm["cubin"])
        file.flush()
        usage = subprocess.run(
            [TOOL, "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    used = {name: int(value) for name, value in re.findall(r"(REG|STACK):(\d+)", usage)}
    return {
        "kernel": f"{kernel.fn.__module__.split('.')[-1]} {kernel.fn.__name__.split('_')[0]}",
        "dtype": dtype, **constants, "warps": warps, "target": f"sm_{target}",
        "registers": used["REG"], "stack": used["STACK"], "shared": binary.metadata.shared,
    }  # fmt: skip


def main():
    os.environ.pop("TRITON_INTERPRET", None)
    warnings.simplefilter("ignore", UserWarning)
    done = set()
    for kernel, *rest in jobs():
        if "--quick" in sys.argv and kernel in done:
            continue
        done.add(kernel)
        for target in TARGETS:
            print(json.dumps(compiled(kernel, *rest, target)), flush=True)


if __name__ == "__main__":
    main()
