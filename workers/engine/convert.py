"""GGUF weights to a folder that vLLM loads, as a program of its own: `python -m workers.engine.convert GGUF
FOLDER`. It knows files and formats, nothing of the catalogue or of where the weights came from, and is run as
a process so that torch never enters the process that wants a model.
"""

import sys
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def convert(gguf: Path, folder: Path) -> None:
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(
        **source, dtype="bfloat16", quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
