# Shows a summary directory in TensorBoard, MindSpore's runs and TensorBoard's alike:
#
#   docker build -t ms_summary_bridge .
#   docker run --rm -p 127.0.0.1:6006:6006 -v "$PWD/summary_dir:/logs:ro" ms_summary_bridge
#
# and then http://127.0.0.1:6006/. Other commands: docker run --rm -v "$PWD/summary_dir:/logs:ro" ms_summary_bridge inspect /logs
FROM python:3.11-slim AS build
COPY . /src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /src

FROM python:3.11-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(echo /wheels/*.whl)[tensorboard]" && useradd --create-home viewer
USER viewer
EXPOSE 6006
ENTRYPOINT ["ms-summary-bridge"]
CMD ["view", "/logs", "--with", "tensorboard", "--host", "0.0.0.0", "--port", "6006"]
