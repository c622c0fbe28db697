"""Kernels, compiled. The form of ``nsvm_cli.models.kernels.RBF``, say, is ``rbf.RBF``, and so on.

``base`` and ``columns`` have what a form defines. It is a named tuple of some attributes of the kernel and of
``bias``, the constant that is added to it. An ``RBF`` of features that are not normalised has another form,
``FarRBF``.
"""
