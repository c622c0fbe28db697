# docker build -t nsvm . && docker run --rm -v "$PWD/outputs:/work/outputs" nsvm train
FROM python:3.13-slim
WORKDIR /nsvm
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY conf conf
COPY nsvm_cli nsvm_cli
RUN pip install --no-cache-dir -c constraints.txt ".[fast]"
WORKDIR /work
ENTRYPOINT ["nsvm"]
CMD ["train"]
