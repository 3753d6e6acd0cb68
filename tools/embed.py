"""Write the headers that CUDA kernels include as string literals: `embed.py core output.inc`."""

import sys
from pathlib import Path

core, output = Path(sys.argv[1]), Path(sys.argv[2])
# What a kernel can include, by the name that it has in `#include`. A file has one name: it is included once.
headers = {"../dtype.h": (core / "dtype.h").read_text(encoding="utf-8")}
PATTERNS = ("vector_*.h", "vector_*.def", "scalar_*.h", "scalar_*.def", "elementwise_scalar.def")
for path in sorted(p for pattern in PATTERNS for p in (core / "kernels").glob(pattern)):
    headers[path.name] = path.read_text(encoding="utf-8")
for path in sorted((core / "cuda").glob("device_*.h")):
    name = "../cuda/" + path.name if path.stem in ("device_library", "device_complex") else path.name
    headers[name] = path.read_text(encoding="utf-8")
for name in (
    "algorithm", "bit", "cmath", "concepts", "cstddef", "cstdint", "cstring", "iterator", "limits", "math.h", "type_traits",
    "utility",
):  # fmt: skip
    headers[name] = '#include "device_standard.h"\n'

lines = []
for name, text in headers.items():
    # A literal may be longer than compilers like: pieces are joined.
    pieces = [text[k : k + 8000] for k in range(0, len(text), 8000)]
    lines.append(f'{{"{name}", ' + "\n".join(f'R"~~({piece})~~"' for piece in pieces) + "},")
output.write_text("\n".join(lines) + "\n", encoding="utf-8")
