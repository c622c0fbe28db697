"""The entry of ``NSVMModel`` in TabArena's registry. Copy this folder to tabarena/models/nsvm."""

from __future__ import annotations

from tabarena.models._method_metadata import MethodMetadata
from tabarena.models._model_info import ModelInfo
from tabarena.models.nsvm.hpo import gen_nsvm
from tabarena.models.nsvm.model import NSVMModel

nsvm_info = ModelInfo(
    model_cls=NSVMModel,
    search_space=gen_nsvm,
    method_metadata=MethodMetadata.config(
        method="NSVM",
        ag_key=NSVMModel.ag_key,
        compute="cpu",
        is_bag=True,
        can_hpo=True,
        config_default="NSVM_c1_default_BAG_L1",
        display_name="NSVM",
        verified=False,
    ),
    pip_extra=("nsvm",),
)
