"""Writes the GGUF file of a packaged model again with float32 weights, for llama.cpp's server.

Everything but the types of the matrices is copied, the tokenizer included. The weights equal those
of the checkpoint that Draftwood makes of the same file.

    python runs/float32_gguf.py smollm2 smollm2-float32.gguf
"""

from pathlib import Path

import click
import gguf

from draftwood.models.packaged import gguf_file

FLOAT32 = 0  # of general.file_type


@click.command()
@click.argument("name")
@click.argument("out", type=click.Path(path_type=Path))
def main(name: str, out: Path) -> None:
    """Write the model NAME to OUT."""
    reader = gguf.GGUFReader(gguf_file(name))
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(out, architecture)
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in ("general.architecture", "general.file_type"):
            continue
        if key == "general.quantization_version":
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), kind, sub_type=inner)
    writer.add_file_type(FLOAT32)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
