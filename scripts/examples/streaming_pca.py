# %% [markdown]
# # Streaming PCA of images
#
# Compute principal components of images that arrive in batches and are never stored. The data are
# 1,797 handwritten digits of 8 x 8 pixels. In one pass, 1,500 digits arrive in batches of ten; the
# others are held out. `StreamingPCA` is a scikit-learn estimator (extra `sklearn`). Here it learns
# 16 of 64 components.

# %%
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from rlreps import plotting
from rlreps.streaming import StreamingPCA

images = load_digits().data / 16
images = images[np.random.default_rng(0).permutation(len(images))]
stream, held_out = images[:1500], images[1500:]
exact = PCA(16).fit(stream)


def error(pca):
    shown = pca.inverse_transform(pca.transform(held_out))
    return float(np.mean(np.sum((held_out - shown) ** 2, axis=1)))


# %% [markdown]
# Compare three rules by the reconstruction error on the held-out images, divided by the error of
# exact PCA:

# %%
rules = {"implicit_krasulina": [], "oja": [], "incremental_pca": []}
for rule, ratios in rules.items():
    pca = StreamingPCA(16, rule=rule, random_state=0)
    for number, batch in enumerate(np.array_split(stream, 150)):
        pca.partial_fit(batch)
        if number % 10 == 9:
            ratios.append(error(pca) / error(exact))
    print(f"{rule}: {ratios[-1]:.3f} times the error of exact PCA")

# %%
seen = np.arange(1, 16) * 100
lines = [plotting.Line.of_runs(rule, seen, [ratios]) for rule, ratios in rules.items()]
figure = plotting.plot_curves(lines, x_label="images seen", y_label="error / exact PCA's")
plotting.save_figure(figure, "error-beside-exact-PCA.png")

# %%
shown = pca.inverse_transform(pca.transform(held_out[:10])).reshape(-1, 8, 8)
rows = {"image": held_out[:10].reshape(-1, 8, 8), "16 components, one pass": shown}
plotting.save_figure(plotting.plot_reconstructions(rows), "digits-and-their-reconstructions.png")
